-- Health of a SpeculativeDeployment for Argo CD, read from what the operator reports.
local function condition(kind)
  for _, found in ipairs(obj.status.conditions) do
    if found.type == kind then
      return found
    end
  end
  return {}
end

local function text(found)
  if found.message ~= nil and found.message ~= "" then
    return found.message
  end
  return found.reason or ""
end

if obj.metadata.deletionTimestamp ~= nil then
  return { status = "Progressing", message = "Deleting" }
end
if obj.status == nil or obj.status.conditions == nil then
  return { status = "Progressing", message = "Waiting for the operator" }
end
-- What stands in the status is about an older spec.
if (obj.status.observedGeneration or 0) < (obj.metadata.generation or 0) then
  return { status = "Progressing", message = "Waiting for the operator to see the latest change" }
end

local degraded = condition("Degraded")
local progressing = condition("Progressing")
local ready = condition("Ready")
local rollout = obj.spec.rollout or {}

if degraded.status == "True" then
  return { status = "Degraded", message = text(degraded) }
end
if rollout.paused or progressing.reason == "RolloutPaused" then
  return { status = "Suspended", message = "Rollout paused" }
end
if progressing.reason == "Paused" then
  return { status = "Suspended", message = text(progressing) }
end
if progressing.status == "True" then
  return { status = "Progressing", message = text(progressing) }
end
-- As Argo CD sees a Deployment without replicas: that is what was asked for.
if ready.status == "True" or ready.reason == "ScaledToZero" then
  return { status = "Healthy", message = text(ready) }
end
return { status = "Progressing", message = text(ready) }
