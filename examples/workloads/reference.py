"""CUPTI as a reference of GPU times, which files in a folder turn on and off: see scripts/compare-cupti.sh."""
import ctypes
import os
import time


class Reference:
    """Turns CUPTI on when FOLDER/on appears, which contains the path of the reference, and off when FOLDER/off appears.
    The program ends when FOLDER/quit appears: is_over is true then."""

    def __init__(self, folder, library):
        self.folder, self.is_on, self.is_over, self.looked = folder, False, False, time.monotonic()
        self.library = ctypes.CDLL(library)

    def path(self, name):
        return os.path.join(self.folder, name)

    def has(self, name):
        return os.path.exists(self.path(name))

    def write(self, name):
        open(self.path(name), "w").close()

    def look(self):
        """Looks for the files, at most four times a second. Call it after each step."""
        if time.monotonic() - self.looked < 0.25:
            return
        self.looked = time.monotonic()
        import torch

        if not self.is_on and self.has("on"):
            torch.cuda.synchronize()
            with open(self.path("on")) as file:
                if self.library.reference_start(file.read().encode()):
                    raise RuntimeError("CUPTI cannot be turned on")
            self.is_on = True
        if self.is_on and self.has("off"):
            torch.cuda.synchronize()
            self.library.reference_stop()
            self.is_on = False
            os.remove(self.path("on"))
            os.remove(self.path("off"))
        self.is_over = self.has("quit")
