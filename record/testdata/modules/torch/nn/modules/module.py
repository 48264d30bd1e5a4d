"""A Module that is called like PyTorch's nn.Module, in a file of the same name.

    wrapped  __call__ is _wrapped_call_impl, as since PyTorch 2.1. self of _call_impl is a cell: a closure uses it
    call     __call__ is _call_impl
    cell     __call__ is _call_impl, whose self is a cell
"""
import os

STYLE = os.environ.get("MODULE_STYLE", "wrapped")


class Module:
    def forward(self, x):
        raise NotImplementedError

    if STYLE == "call":
        def _call_impl(self, *args, **kwargs):
            return self.forward(*args, **kwargs)
    else:
        def _call_impl(self, *args, **kwargs):
            if not kwargs:
                return self.forward(*args)

            def inner():
                return self.forward(*args, **kwargs)
            return inner()

    if STYLE == "wrapped":
        def _wrapped_call_impl(self, *args, **kwargs):
            return self._call_impl(*args, **kwargs)
        __call__ = _wrapped_call_impl
    else:
        __call__ = _call_impl
