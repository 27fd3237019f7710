class PodProblem(Exception):  # noqa: N818 - a state that a pod shows and may leave, not a crash
    """Why a container cannot start now; it shows in the container's status, and is tried again."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


CREATE_CONTAINER_CONFIG_ERROR = "CreateContainerConfigError"
CREATE_CONTAINER_ERROR = "CreateContainerError"
ERR_IMAGE_PULL = "ErrImagePull"
IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
CONTAINER_CREATING = "ContainerCreating"
POD_INITIALIZING = "PodInitializing"
