"""Runs training steps, and lets CUPTI record them for a part of the time.

    python3 referenced.py WORKLOAD FOLDER --reference libreference.so

WORKLOAD is a name of models.py. The program writes FOLDER/ready when its steps are steady. It turns
CUPTI on when FOLDER/on appears, which contains the path of the reference, and off when FOLDER/off
appears. It ends when FOLDER/quit appears. FOLDER/steps has the Unix time in ns of every step's end.
scripts/compare-cupti.sh uses it.
"""
import argparse
import ctypes
import os
import time

import models


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=models.STEPS)
    parser.add_argument("folder")
    parser.add_argument("--reference", required=True)
    options = parser.parse_args()

    import torch

    def has(name):
        return os.path.exists(os.path.join(options.folder, name))

    step = models.STEPS[options.workload]()
    library = ctypes.CDLL(options.reference)
    begin = time.monotonic()
    while time.monotonic() - begin < 3:
        step()
    torch.cuda.synchronize()
    open(os.path.join(options.folder, "ready"), "w").close()
    looked, is_on = time.monotonic(), False
    steps = open(os.path.join(options.folder, "steps"), "w")
    while True:
        step()
        print(time.time_ns(), file=steps)
        if time.monotonic() - looked < 0.25:
            continue
        looked = time.monotonic()
        if has("quit"):
            steps.close()
            return
        if not is_on and has("on"):
            torch.cuda.synchronize()
            with open(os.path.join(options.folder, "on")) as file:
                if library.reference_start(file.read().encode()):
                    raise RuntimeError("CUPTI cannot be turned on")
            is_on = True
        if is_on and has("off"):
            torch.cuda.synchronize()
            library.reference_stop()
            is_on = False
            os.remove(os.path.join(options.folder, "on"))
            os.remove(os.path.join(options.folder, "off"))


main()
