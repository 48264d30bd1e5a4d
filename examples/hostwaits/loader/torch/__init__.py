"""A simulated PyTorch: only the data loader, with PyTorch's names of files and functions."""
