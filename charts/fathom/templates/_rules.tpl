{{/* All that the operator may do to the resources it serves; tests hold it against what it does. */}}
{{- define "fathom.rules" -}}
{{- if .Values.tunersOnly -}}
{{- include "fathom.tunerRules" . -}}
{{- else -}}
# What users ask for is read, never written; what became of it goes to the status.
- apiGroups: [fathom.dev]
  resources: [speculativedeployments, speculationtuners]
  verbs: [get, list, watch]
- apiGroups: [fathom.dev]
  resources: [speculativedeployments/status, speculationtuners/status]
  verbs: [patch]
# The children. A server-side apply is a patch that also asks for create where nothing is there yet;
# what is not deleted here goes with its owner.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [list, watch, create, patch]
# Weights are fetched by a Job. The claim that holds them outlives everything, so it is not deleted.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, watch, create, patch]
# Where the cluster serves these APIs.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [list, watch, create, patch, delete]
# A replica over several nodes, where the cluster serves these APIs.
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [resource.nvidia.com]
  resources: [computedomains]
  verbs: [list, watch, create, patch, delete]
# Pods are watched, annotated so that a new depth reaches their volume soon, and deleted one at a
# time to be started afresh, with `rollout.refresh: Auto` only.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch, delete]
# What the operator tells; read while a group or a fetch lacks pods, as nothing else says why.
- apiGroups: [""]
  resources: [events]
  verbs: [list, create]
{{- end -}}
{{- end -}}

{{/* What SpeculationTuners need: they own no pods. */}}
{{- define "fathom.tunerRules" -}}
- apiGroups: [fathom.dev]
  resources: [speculationtuners]
  verbs: [get, list, watch]
- apiGroups: [fathom.dev]
  resources: [speculationtuners/status]
  verbs: [patch]
# A depth document and what was learned, which go with their tuner.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list, create, patch]
# Annotated, so that a new depth reaches their volume soon.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}
