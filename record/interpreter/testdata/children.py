"""Forks a child that holds the GIL, then executes another program: sys.argv[1:]."""
import os
import sys

print("ready", flush=True)
child = os.fork()
if child == 0:
    while True:
        sum(range(10000))
print(child, flush=True)
sys.stdin.readline()
os.kill(child, 9)
os.waitpid(child, 0)
os.execv(sys.argv[1], sys.argv[1:])
