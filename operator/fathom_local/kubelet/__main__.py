"""`python -m fathom_local.kubelet CONFIG`."""

import sys
from pathlib import Path

from fathom_local.daemon import run_until_signal
from fathom_local.kubelet.config import KubeletConfig
from fathom_local.kubelet.daemon import run_kubelet

if __name__ == "__main__":
    run_until_signal(run_kubelet(KubeletConfig.model_validate_json(Path(sys.argv[1]).read_text())))
