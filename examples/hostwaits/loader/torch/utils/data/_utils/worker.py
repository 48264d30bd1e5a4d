"""The loop of a worker process."""
import ctypes
import signal

from torch.utils.data._utils import fetch

PR_SET_NAME, PR_SET_PDEATHSIG = 15, 1


def _worker_loop(dataset, index_queue, data_queue):
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(PR_SET_NAME, b"pt_data_worker")
    fetcher = fetch._MapDatasetFetcher(dataset)
    while (index := index_queue.get()) is not None:
        data_queue.put((index, fetcher.fetch(index)))
