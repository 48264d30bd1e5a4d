"""A data loader with worker processes. The functions in which it waits have the names of PyTorch."""
import multiprocessing
import queue

from torch.utils.data._utils import worker

MP_STATUS_CHECK_INTERVAL = 5.0


class DataLoader:
    """Loads the items of a dataset in worker processes, in order."""

    def __init__(self, dataset, num_workers, prefetch_factor=2):
        self.dataset, self.num_workers, self.prefetch_factor = dataset, num_workers, prefetch_factor

    def __iter__(self):
        return _MultiProcessingDataLoaderIter(self)


class _BaseDataLoaderIter:
    def __iter__(self):
        return self

    def __next__(self):
        return self._next_data()


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader):
        context = multiprocessing.get_context("fork")
        self._timeout, self._data_queue = 0, context.Queue()
        self._index_queues, self._workers, self._early = [], [], {}
        self._send_idx = self._rcvd_idx = 0
        for _ in range(loader.num_workers):
            index_queue = context.Queue()
            process = context.Process(
                target=worker._worker_loop, args=(loader.dataset, index_queue, self._data_queue), daemon=True
            )
            process.start()
            self._index_queues.append(index_queue)
            self._workers.append(process)
        for _ in range(loader.num_workers * loader.prefetch_factor):
            self._try_put_index()

    def _try_put_index(self):
        self._index_queues[self._send_idx % len(self._workers)].put(self._send_idx)
        self._send_idx += 1

    def _try_get_data(self, timeout=MP_STATUS_CHECK_INTERVAL):
        try:
            return True, self._data_queue.get(timeout=timeout)
        except queue.Empty:
            if not all(process.is_alive() for process in self._workers):
                raise RuntimeError("a worker of the data loader has ended") from None
            return False, None

    def _get_data(self):
        while True:
            success, data = self._try_get_data()
            if success:
                return data

    def _next_data(self):
        while self._rcvd_idx not in self._early:
            index, data = self._get_data()
            self._early[index] = data
        self._rcvd_idx += 1
        self._try_put_index()
        return self._early.pop(self._rcvd_idx - 1)

    def shutdown(self):
        """Ends the workers."""
        for process in self._workers:
            process.kill()
            process.join()
