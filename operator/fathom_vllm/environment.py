"""What a pod's environment says to the plugin. The operator writes by the same names."""

POD_NAME = "FATHOM_POD_NAME"
"""The pod's name, by which it finds its own entry in the depth document."""
POD_UID = "FATHOM_POD_UID"
"""By which its page is told from that of another pod of this name."""
DEPTH_FILE = "FATHOM_DEPTH_FILE"
COUNTERS_FILE = "FATHOM_COUNTERS_FILE"
STARTUP = "FATHOM_STARTUP"
"""What is in force without a document: `OWN_TABLE`, or else the depth of its first range."""
OWN_TABLE = "engine"
"""The engine's own table, as vLLM was started with it."""

DEPTH_DIRECTORY = "/etc/fathom/depth"
DEPTH_KEY = "depth.json"
"""The depth document's key in its ConfigMap, and so its file's name."""
DEFAULT_DEPTH_FILE = f"{DEPTH_DIRECTORY}/{DEPTH_KEY}"
DEFAULT_COUNTERS_FILE = "/dev/shm/fathom-counters"  # noqa: S108 - memory, private to the pod
