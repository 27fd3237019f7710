"""`python -m local_cluster.kubelet CONFIG`."""

import sys
from pathlib import Path

from local_cluster.daemon import run_until_signal
from local_cluster.kubelet.config import KubeletConfig
from local_cluster.kubelet.daemon import run_kubelet

if __name__ == "__main__":
    run_until_signal(run_kubelet(KubeletConfig.model_validate_json(Path(sys.argv[1]).read_text())))
