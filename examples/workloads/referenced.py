"""Runs training steps, and lets CUPTI record them for a part of the time.

    python3 referenced.py WORKLOAD FOLDER --reference libreference.so

WORKLOAD is a name of models.py. The program writes FOLDER/ready when its steps are steady. It turns
CUPTI on when FOLDER/on appears, which contains the path of the reference, and off when FOLDER/off
appears. It ends when FOLDER/quit appears. FOLDER/steps has the Unix time in ns of every step's end.
scripts/compare-cupti.sh uses it.
"""
import argparse
import time

import models
from reference import Reference


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=models.STEPS)
    parser.add_argument("folder")
    parser.add_argument("--reference", required=True)
    options = parser.parse_args()

    import torch

    step = models.STEPS[options.workload]()
    reference = Reference(options.folder, options.reference)
    begin = time.monotonic()
    while time.monotonic() - begin < 3:
        step()
    torch.cuda.synchronize()
    reference.write("ready")
    with open(reference.path("steps"), "w") as steps:
        while not reference.is_over:
            step()
            print(time.time_ns(), file=steps)
            reference.look()


main()
