"""A GPU that is not there: tensors that say they are on it, and raise where a real one would wait.

Their values are on the CPU. They call their device "meta", which torch knows without CUDA. What would wait is
what `torch.cuda.set_sync_debug_mode` refuses: values or sizes that the host needs, and blocking copies.
"""

import contextlib
import functools

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from activebias import checks
from pretend_gpu import pretend_gpu

DEVICE = torch.device("meta")

# The host needs the result, or its size.
WAITING = {
    "_local_scalar_dense",
    "_unique",
    "_unique2",
    "bincount",
    "equal",
    "masked_select",
    "multinomial",
    "nonzero",
    "repeat_interleave",
    "unique_consecutive",
    "unique_dim",
    "unique_dim_consecutive",
}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
COPIES = {"_to_copy", "copy_"}
# These copy a single number on the CPU to the device, and wait for the copy.
COPY_A_NUMBER = {*INDEXING, "where"}


class WouldWait(RuntimeError):
    """An operation in a step would wait for the device."""


class WouldNotReplay(RuntimeError):
    """A CUDA graph would not do what this call does."""


class OnDevice(torch.Tensor):
    """A tensor that says it is on the device; `here` has its values."""

    is_cuda = True

    @staticmethod
    def __new__(cls, here):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            here.size(),
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=DEVICE,
        )

    def __init__(self, here):
        self.here = here

    def tolist(self):
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        raise AssertionError("A tensor on the pretended device is used while the device is off.")


class PretendDevice(TorchDispatchMode):
    """While it is active, tensors may be made on DEVICE, and the bias takes it for a GPU."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # seconds to import, and nothing is compiled

    def __init__(self, monkeypatch):
        super().__init__()
        self.may_wait = True
        self.num_waits = 0
        self.is_capturing = False
        self._trace = None
        self.graphs = pretend_gpu(monkeypatch, held=self.held)
        monkeypatch.setattr(checks, "device_of_state", torch.device)
        for name in ("tensor", "as_tensor"):
            monkeypatch.setattr(torch, name, _by_copy(getattr(torch, name)))
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.is_capturing)

    @contextlib.contextmanager
    def step(self):
        """Refuse to wait."""
        self.may_wait = False
        try:
            yield
        finally:
            self.may_wait = True

    @contextlib.contextmanager
    def capture(self):
        """Do as in the capture of a CUDA graph; give the list of kernels that it would hold."""
        before = self.may_wait, self.is_capturing, self._trace
        self.may_wait, self.is_capturing, self._trace = False, True, Trace()
        try:
            yield self._trace
        finally:
            self.may_wait, self.is_capturing, self._trace = before

    def held(self, function):
        """Return the function that a graph holds: each call must be the very kernels of the first one."""
        first = None

        def call(*inputs):
            nonlocal first
            with self.capture() as trace:
                self.is_capturing = first is None  # a replay does not run the host's code
                outputs = function(*inputs)
            first = first or trace
            first.compare(trace)
            return outputs

        return call

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        options = dict(options or {})
        given = _tensors([*arguments, *options.values()])
        there = [each for each in given if isinstance(each, OnDevice)]
        name, number = _schema(function)
        changed = None if number is None else arguments[number]
        gives_there = bool(there) if changed is None else isinstance(changed, OnDevice)
        if options.get("device") is not None:
            gives_there = options["device"] == DEVICE
            options["device"] = torch.device("cpu")
        if there or gives_there:
            self._check(name, arguments, options, given, gives_there)
        values = _mapped(_here, arguments)
        found = function(*values, **dict(zip(options, _mapped(_here, options.values()), strict=True)))
        if there or gives_there:
            if self._trace is not None:
                self._trace.add(function, values, found)
            if changed is not None and isinstance(found, torch.Tensor):
                return changed
        if gives_there:
            return _mapped(OnDevice, [found])[0]
        return found

    def _check(self, name, arguments, options, given, gives_there):
        """Raise where the device would."""
        on_cpu = [each for each in given if not isinstance(each, OnDevice)]
        waits = name in WAITING and options.get("output_size") is None
        if name in COPIES:
            blocks = not (options.get("non_blocking") or (name == "copy_" and True in arguments[2:]))
            from_there = isinstance(arguments[-1 if name == "_to_copy" else 1], OnDevice)
            waits = from_there != gives_there and (blocks or from_there)
        elif any(each.dim() for each in on_cpu) and name not in INDEXING:
            raise RuntimeError(f"Expected all tensors on one device, but {name} has some on the CPU.")
        elif name in COPY_A_NUMBER:
            indices = arguments[1] if name in INDEXING else []
            waits = bool(on_cpu) or any(each is not None and each.dtype == torch.bool for each in indices)
        self.num_waits += waits
        if waits and not self.may_wait:
            raise WouldWait(f"{name} would wait for the device.")
        if on_cpu and self._trace is not None:
            raise WouldNotReplay(f"{name} uses a tensor on the CPU, which a graph does not read again.")


class Trace:
    """The kernels that a CUDA graph holds, with the addresses that they use."""

    def __init__(self):
        self.kernels = []
        self._kept_alive = []  # no address of these may come again
        self._made = {}  # the storage that a kernel has made: its number

    def add(self, function, arguments, found):
        """Add a kernel. What the graph makes is known by its number, everything else by its address."""
        given = set()

        def known(tensor):
            address = tensor.untyped_storage().data_ptr()
            given.add(address)
            where = self._made.get(address, address)
            return where, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype

        self.kernels.append((function, *_mapped(known, arguments)))
        for each in _tensors([found]):
            if (address := each.untyped_storage().data_ptr()) not in given:
                self._made[address] = f"made {len(self._made)}"
        self._kept_alive += [arguments, found]

    def compare(self, other):
        """Raise if the other kernels are not these."""
        for mine, theirs in zip(self.kernels, other.kernels, strict=False):
            if mine != theirs:
                raise WouldNotReplay(f"A graph holds {mine}, but {theirs} is to run.")
        if len(self.kernels) != len(other.kernels):
            raise WouldNotReplay(f"A graph holds {len(self.kernels)} kernels, not {len(other.kernels)}.")


def _by_copy(make):
    """Return the function that makes a tensor on the CPU and copies it, as it does for a GPU."""

    def made(data, *, dtype=None, device=None):
        found = make(data, dtype=dtype)
        return found if device is None else found.to(device)

    return made


def _here(tensor):
    return tensor.here if isinstance(tensor, OnDevice) else tensor


def _mapped(function, values):
    """Return the values with the function applied to all tensors; some values are lists of tensors."""
    return [
        function(each)
        if isinstance(each, torch.Tensor)
        else _mapped(function, each)
        if type(each) in (list, tuple)
        else each
        for each in values
    ]


def _tensors(values):
    """Return all tensors of the values."""
    found = []
    _mapped(found.append, values)
    return found


@functools.cache
def _schema(function):
    """Return the function's name, and which argument it writes to (None: none)."""
    arguments = enumerate(function._schema.arguments)
    written = (number for number, each in arguments if each.alias_info and each.alias_info.is_write)
    return function._schema.name.removeprefix("aten::"), next(written, None)
