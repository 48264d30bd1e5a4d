"""Fetches the samples of a batch in a worker."""


class _MapDatasetFetcher:
    def __init__(self, dataset):
        self.dataset = dataset

    def fetch(self, index):
        return self.dataset[index]
