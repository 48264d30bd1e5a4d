"""The workers of a data loader, with the names of PyTorch."""
