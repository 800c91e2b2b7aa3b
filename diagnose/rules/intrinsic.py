"""What a record says without any rule: the error type of a Python exception.

In: a traceback or JSON error record. Out: which of its exceptions decides, its error type and role. The class is taken
by its last name, so `torch.cuda.OutOfMemoryError` and `torch.OutOfMemoryError` are one. A rule refines this.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Mapping

from diagnose.dataclass import replace
from diagnose.lines.frames import innermost_user_frame
from diagnose.models import RaisedException, Record
from diagnose.patterns import Lazy

# Exception classes whose name is not their error type. Classes named like an error type of the taxonomy need no row.
_ERROR_TYPES: Mapping[str, str] = {
    # the language
    "ModuleNotFoundError": "ImportError",
    "UnboundLocalError": "NameError",
    "IndentationError": "SyntaxError",
    "TabError": "SyntaxError",
    "UnicodeEncodeError": "ValueError",
    "NotADirectoryError": "OSError",
    "IsADirectoryError": "OSError",
    "FileExistsError": "OSError",
    "IOError": "OSError",
    "EnvironmentError": "OSError",
    "BlockingIOError": "OSError",
    "MemoryError": "HostOutOfMemory",
    "TimeoutExpired": "CalledProcessError",
    # settings and arguments
    "ArgumentTypeError": "ArgumentError",
    "BadParameter": "ArgumentError",
    "ConfigAttributeError": "ConfigurationError",
    "ConfigKeyError": "ConfigurationError",
    "ConfigCompositionException": "ConfigurationError",
    "ConfigValidationError": "ConfigurationError",
    "HydraException": "ConfigurationError",
    "InstantiationException": "ConfigurationError",
    "InterpolationKeyError": "ConfigurationError",
    "InterpolationResolutionError": "ConfigurationError",
    "MisconfigurationException": "ConfigurationError",
    "MissingConfigException": "ConfigurationError",
    "MissingMandatoryValue": "ConfigurationError",
    "OverrideParseException": "ArgumentError",
    "ValidationError": "ConfigurationError",
    "YAMLError": "ConfigurationError",
    "ScannerError": "ConfigurationError",
    "ParserError": "ConfigurationError",
    "TOMLDecodeError": "ConfigurationError",
    # services and the network
    "ConnectionRefusedError": "ConnectionError",
    "ConnectError": "ConnectionError",
    "ConnectTimeout": "ConnectionError",
    "ConnectTimeoutError": "ConnectionError",
    "ClientConnectorError": "ConnectionError",
    "DistNetworkError": "ConnectionError",
    "DistStoreError": "ConnectionError",
    "HTTPError": "ConnectionError",
    "HTTPStatusError": "ConnectionError",
    "HfHubHTTPError": "ConnectionError",
    "APIConnectionError": "ConnectionError",
    "APITimeoutError": "ConnectionError",
    "BadStatusLine": "ConnectionError",
    "ChunkedEncodingError": "ConnectionError",
    "ClientConnectionError": "ConnectionError",
    "ClientOSError": "ConnectionError",
    "ClientPayloadError": "ConnectionError",
    "ConnectionClosedError": "ConnectionError",
    "ConnectionFailedError": "ConnectionError",
    "ConnectionTimeout": "ConnectionError",
    "ConnectionTimeoutError": "ConnectionError",
    "EtcdConnectionFailed": "ConnectionError",
    "EtcdLeaderElectionInProgress": "ConnectionError",
    "EtcdWatchTimedOut": "ConnectionError",
    "IncompleteRead": "ConnectionError",
    "NameResolutionError": "ConnectionError",
    "PoolTimeout": "ConnectionError",
    "ProtocolError": "ConnectionError",
    "RemoteDisconnected": "ConnectionError",
    "RemoteProtocolError": "ConnectionError",
    "ServerDisconnectedError": "ConnectionError",
    "ServerTimeoutError": "ConnectionError",
    "SSLEOFError": "ConnectionError",
    "SSLZeroReturnError": "ConnectionError",
    "WriteTimeout": "ConnectionError",
    "herror": "ConnectionError",
    "CommError": "ConnectionError",
    "LocalEntryNotFoundError": "ConnectionError",
    "MaxRetryError": "ConnectionError",
    "NewConnectionError": "ConnectionError",
    "OfflineModeIsEnabled": "ConnectionError",
    "ProxyError": "ConnectionError",
    "ReadTimeout": "ConnectionError",
    "ReadTimeoutError": "ConnectionError",
    "RendezvousConnectionError": "ConnectionError",
    "RendezvousTimeoutError": "ConnectionError",
    "SSLError": "ConnectionError",
    "URLError": "ConnectionError",
    "gaierror": "ConnectionError",
    "GatedRepoError": "AuthenticationError",
    "AuthenticationException": "AuthenticationError",
    # storage and data
    "BotoCoreError": "S3StorageError",
    "ClientError": "S3StorageError",
    "EndpointConnectionError": "S3StorageError",
    "NoCredentialsError": "AuthenticationError",
    "S3UploadFailedError": "S3StorageError",
    "SafetensorError": "ModelLoadingError",
    "UnpicklingError": "ModelLoadingError",
    "ArrowInvalid": "DatasetLoadingError",
    "DataFilesNotFoundError": "DatasetLoadingError",
    "DatasetGenerationError": "DatasetLoadingError",
    "DatasetNotFoundError": "DatasetLoadingError",
    # TensorFlow's statuses
    "DataLossError": "DatasetLoadingError",
    "DeadlineExceededError": "ConnectionError",
    "FailedPreconditionError": "RuntimeError",
    "InvalidArgumentError": "ValueError",
    "NotFoundError": "FileNotFoundError",
    "PermissionDeniedError": "PermissionError",
    "UnavailableError": "ConnectionError",
    # devices
    "AcceleratorError": "CUDAError",
    "DistBackendError": "NCCLSystemError",
    "ResourceExhaustedError": "OutOfMemoryError",
    # what only follows
    "BrokenPipeError": "PeerClosed",
    "ConnectionAbortedError": "PeerClosed",
    "ConnectionResetError": "PeerClosed",
    "KeyboardInterrupt": "Terminated",
    "SIGTERMException": "Terminated",
    "SignalException": "Terminated",
    "ChildFailedError": "ChildFailed",
    "ProcessExitedException": "ChildFailed",
    "ProcessRaisedException": "ChildFailed",
    "ActorDiedError": "RemoteTaskFailed",
    "ActorUnavailableError": "RemoteTaskFailed",
    "RayActorError": "RemoteTaskFailed",
    "RayTaskError": "RemoteTaskFailed",
    "RemoteTraceback": "RemoteTaskFailed",
    "WorkerCrashedError": "RemoteTaskFailed",
}
_OS_ERRORS = frozenset({"OSError", "IOError", "EnvironmentError", "error", "TimeoutError"})
# What the operating system says of connections, where a plain OSError says it; a file system over a network names the
# file as well, and is no connection of the program's own.
_ERRNO = re.compile(r"\[Errno (-?\d{1,4})\][^'\n]{0,80}\Z")
_ERRNO_TYPES: Mapping[int, str] = {
    **dict.fromkeys((99, 100, 101, 102, 110, 111, 112, 113, -2, -3, -5), "ConnectionError"),
    **dict.fromkeys((32, 103, 104), "PeerClosed"),
}
# What only the file system beneath a path says, and so never of a connection.
_ERRNO_OF_FILE = re.compile(r"\[Errno (\d{1,4})\][^'\n]{0,80}: b?'")
_FILE_SYSTEM = frozenset(
    # EIO ENODEV EROFS ENONET ENOLINK ECOMM EPROTO EBADMSG, the network's, ESHUTDOWN, ESTALE EUCLEAN EREMOTEIO EHWPOISON
    {5, 19, 30, 64, 67, 70, 71, 74, 100, 101, 102, 103, 104, 107, 108, 110, 112, 113, 116, 117, 121, 133}
)
_WITH_FILE = _OS_ERRORS | {"ConnectionAbortedError", "ConnectionResetError"}
# What the operating system says of a script's own wrong call: a path, a mode, a value. All else is the machine's, and
# nobody is blamed for it without more: ENOLCK, EBUSY, EAGAIN, ETIME, NFS's own numbers.
_OF_SCRIPT = frozenset(
    {1, 2, 7, 8, 9, 13, 14, 17, 18, 20, 21, 22, 25, 27, 29, 31, 32, 33, 34, 36, 38, 39, 40, 88, 89, 90, 91, 92, 93, 94}
    | {95, 96, 97, 98, 106, 122}
)
_ERRNO_ANYWHERE = re.compile(r"\[Errno (-?\d{1,4})\]")
_NETWORK_WORDS = Lazy(
    r"(?i:timed? ?out|unreachable|connection|network|end ?point is not|host is down|input/output error)"
)
# Packages whose exceptions tell of a service at the other end, but for these, which tell of what was asked of it.
_SERVICE_PACKAGES = frozenset(
    {"aiohttp", "etcd", "etcd3", "grpc", "http", "httpcore", "httpx", "kazoo", "pymongo", "redis", "requests", "socket"}
    | {"ssl", "urllib", "urllib3", "websocket", "websockets", "zmq"}
)
_ASKED_WRONGLY = ("Invalid", "Missing", "Unsupported", "NonHttpUrl", "LocationParse", "JSONDecode", "TooManyRedirects")
# Classes of libraries that have the name of an error type.
_LIBRARY_CLASSES = frozenset({"CalledProcessError", "JSONDecodeError", "OutOfMemoryError"})
# Raised and caught as a matter of course: as the handled half of a chain they may be control flow.
_CONTROL_FLOW = frozenset(
    {
        "AttributeError",
        "Empty",
        "ImportError",
        "IndexError",
        "KeyError",
        "ModuleNotFoundError",
        "StopIteration",
        "TypeError",
    }
)
_NO_ERROR = frozenset({"SystemExit", "StopIteration", "GeneratorExit", "Empty", "Full"})
_SYMPTOMS = frozenset({"NCCLTimeoutError", "NCCLRemoteError", "NCCLSystemError", "CollectiveHang"})
_MESSAGE_LINES = 12
_TOLD = Lazy(r"\s{0,8}((?:\w{1,60}\.){0,8}([A-Z]\w{2,60})): ?")
_HANDLED = "During handling of the above exception"
_CAUSED = "direct cause of the following exception"
# Functions in the midst of another one's lines, which Python gives frames of their own.
_WITHIN = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>"})
_CLEANS_UP = Lazy(
    r"(?i:clean_?up|shut_?down|tear_?down|finali[sz]e|finish|close|destroy|terminate|release|disconnect|unlink|rollback"
    r"|__exit__|__del__|on_exception|on_fail|report_error|send_alert)"
)


def deciding_exception(record: Record) -> RaisedException | None:
    """The exception of a chain that says most about the cause.

    The first raised, as it lies beneath the rest; but not where it was only being handled, without being named as the
    cause, and is control flow or happened in a library, and not where it is a wrapper's word for a remote failure.
    """
    chain = deciding_chain(record)
    return _told_within(chain[0], record) if chain else None


def deciding_chain(record: Record) -> tuple[RaisedException, ...]:
    """The exception that decides, as it was raised, and those raised after it."""
    chain = [exception for exception in record.exceptions if exception.name not in _NO_ERROR]
    while len(chain) > 1 and (
        error_type_of(chain[0], {}) in ("RemoteTaskFailed", "PeerClosed", "Terminated")
        or (_only_handled(chain[0], chain[1], record) and _says_little(chain[0], chain[1], record))
    ):
        chain.pop(0)
    return tuple(chain)


def _only_handled(first: RaisedException, second: RaisedException, record: Record) -> bool:
    """Whether the second was raised while the first was being handled, and not because of it."""
    between = "\n".join(line.body for line in record.lines[first.line_index + 1 : second.line_index]) or record.text
    return _HANDLED in between and _CAUSED not in between


def _says_little(first: RaisedException, second: RaisedException, record: Record) -> bool:
    """Whether a handled exception was no failure: a library's own affair, or an attempt that its handler makes good.

    The latter is caught where it was raised (`try: import apex`). It is the failure after all where the handler gives
    up with an exception of its own, or where the handler cleans up and fails at that.
    """
    own = [frame for frame in first.frames if frame.user and frame.function not in _WITHIN]
    if not own:
        return innermost_user_frame(first) is None
    outer = first.frames[0]
    caught_there = any((frame.file, frame.function) == (outer.file, outer.function) for frame in second.frames)
    if first.name not in _CONTROL_FLOW or len(own) > 1 or not (outer.user and caught_there):
        return False
    code = _raising_code(second, record)
    gives_up = code.startswith("raise ") and second.frames[-1:] != () and second.frames[-1].user
    names = [frame.function or "" for frame in second.frames[-2:]]
    return not gives_up and not any(map(_CLEANS_UP.search, (code, *names)))


def _raising_code(exception: RaisedException, record: Record) -> str:
    """The line of code that a traceback quotes just before it states its exception."""
    for line in record.lines[exception.line_index - 1 : 0 : -1][:4]:
        text = line.body.strip()
        if text.strip("^~ "):
            return "" if text.startswith('File "') else text
    return ""


def _told_within(exception: RaisedException, record: Record) -> RaisedException:
    """The exception that another one's message tells of, where the outer class says nothing by itself.

    Compilers and launchers raise a class of their own whose message holds the true one: at its start, or on a line by
    itself after one that ends in a colon (`backend='inductor' raised:`).
    """
    if _ERROR_TYPES.get(exception.name, "RuntimeError") != "RuntimeError" or hasattr(builtins, exception.name):
        return exception
    opened = True
    for text in exception.message.split("\n", _MESSAGE_LINES)[:_MESSAGE_LINES]:
        found = _TOLD.match(text) if opened else None
        if found is not None and (hasattr(builtins, found[2]) or found[2] in _ERROR_TYPES):
            lines = range(exception.line_index, min(len(record.lines), exception.line_index + _MESSAGE_LINES))
            at = next((i for i in lines if found[0].strip() in record.lines[i].text), exception.line_index)
            return replace(exception, type=found[1], message=text[found.end() :].strip(), line_index=at)
        opened = text.rstrip().endswith(":")
    return exception


def error_type_of(exception: RaisedException, known: Mapping[str, object]) -> str:
    """An exception class's error type: its own name where the taxonomy has it, else the table's, else RuntimeError."""
    name = exception.name.partition("(")[0]
    message = exception.message.partition("\n")[0].strip()
    of_file = _ERRNO_OF_FILE.match(message) if name in _WITH_FILE else None
    if of_file is not None and int(of_file[1]) in _FILE_SYSTEM and "StorageIOError" in known:
        return "StorageIOError"
    if name in _OS_ERRORS and (match := _ERRNO.match(message)) is not None:
        error_type = _ERRNO_TYPES.get(int(match[1]))
        if error_type is not None:
            return error_type
    return error_type_called(name, known)


def error_type_called(name: str, known: Mapping[str, object]) -> str:
    """What a class is by its name alone."""
    return name if name in known else _ERROR_TYPES.get(name, "RuntimeError")


def blames_nobody(exception: str, message: str) -> bool:
    """Whether an exception, by its class as printed and its message, may as well be the machine's doing as the code's.

    It holds for what only the operating system or a service's client says, and no rule knows more of: an OSError whose
    number is not of a wrong call, a time-out, an exception of a package for the network.
    """
    package, _, _ = exception.partition(".")
    name = exception.rpartition(".")[2].partition("(")[0]
    if name in _OS_ERRORS - {"error", "TimeoutError"} or exception in ("error", "socket.error", "select.error"):
        numbers = _ERRNO_ANYWHERE.match(message)
        if numbers is not None:
            return int(numbers[1]) not in _OF_SCRIPT
        return _NETWORK_WORDS.search(message.partition("\n")[0]) is not None
    if name in ("BlockingIOError", "InterruptedError", "TimeoutError", "timeout"):
        return True
    return package in _SERVICE_PACKAGES and "." in exception and not name.startswith(_ASKED_WRONGLY)


def exception_classes(known: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The exception classes that need no rule, by error type; `known` are the names of the taxonomy's types."""
    classes: dict[str, list[str]] = {}
    for name in known:
        if name in _LIBRARY_CLASSES or isinstance(getattr(builtins, name, None), type):
            classes[name] = [name]
    for name, error_type in _ERROR_TYPES.items():
        classes.setdefault(error_type, []).append(name)
    return {error_type: tuple(names) for error_type, names in classes.items()}


def role_of(error_type: str, *, symptom: bool) -> str:
    """The role of an exception by itself: teardown for symptom types, symptom for what waited, else cause."""
    if symptom:
        return "teardown"
    return "symptom" if error_type in _SYMPTOMS else "cause"
