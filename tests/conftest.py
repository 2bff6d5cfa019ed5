"""One thread a process: the models here are too small to share,
and the subprocesses of several tests want a core."""
import torch

torch.set_num_threads(1)
