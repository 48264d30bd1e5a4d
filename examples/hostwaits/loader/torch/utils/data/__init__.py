"""Data loading, with the names of PyTorch."""
from torch.utils.data.dataloader import DataLoader

__all__ = ["DataLoader"]
