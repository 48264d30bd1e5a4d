"""Data loading, with the names of PyTorch."""
