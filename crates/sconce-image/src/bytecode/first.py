

# What follows compiles what a command imports before all else, on every core:
# python ... SCRIPT ROOT TREES SITE KIND WHAT. Tree N lies at ROOT/trees/N/source, its bytecode,
# finished or not, at ROOT/trees/N/bytecode; a later tree covers an earlier one. SITE is where
# packages lie in them, KIND and WHAT the command: `code` and its text, `module` and a name, `file`
# and a path below ROOT; the command's own modules, which are not compiled, lie in ROOT/local.
# Nothing of what is read here is executed. Which imports a module has is read from its code: a
# wrong guess costs time, no more. Prints a line for every extension module that is found: its tree,
# a tab, its path there.

import importlib.machinery
import opcode
import select

CODE = type((lambda: None).__code__)
SUFFIXES = [*importlib.machinery.EXTENSION_SUFFIXES, ".py"]
# A guard against a project without end: torch alone has 1,100 to import.
MOST_MODULES = 6000
MOST_WORKERS = 8
# Every interpreter imports these before it looks at its command.
ALWAYS = ["site", "encodings.utf_8", "encodings.utf_8_sig"]

ROOT = sys.argv[1].rstrip("/")
LOCAL = f"{ROOT}/local"
TREES = f"{ROOT}/trees"
VERSION = "%d.%d" % sys.version_info[:2]
STANDARD = [f"usr/lib/python{VERSION}", f"usr/lib/python{VERSION}/lib-dynload"]


def imports(code):
    """What a module imports when it is imported: (level, name, names after `import` or None).
    Functions are not called then, classes are; what is there for type checkers is not run."""
    found = []
    pending = [code]
    while pending:
        code = pending.pop()
        found += own_imports(code)
        # A function has local variables in slots (CO_OPTIMIZED), a class body does not.
        inner = (c for c in code.co_consts if isinstance(c, CODE))
        pending += [c for c in inner if not c.co_flags & 1]
    return found


def operations(*names):
    """The numbers of those operations that this version of Python has."""
    return frozenset(opcode.opmap[name] for name in names if name in opcode.opmap)


IMPORT = operations("IMPORT_NAME")
EXTENDED = operations("EXTENDED_ARG")
CONSTANT = operations("LOAD_CONST")
SMALL = operations("LOAD_SMALL_INT")
NAME = operations("LOAD_NAME")
ATTRIBUTE = operations("LOAD_ATTR")
# Since 3.12 the argument of LOAD_ATTR has a flag below the name.
FLAGS = int(sys.version_info >= (3, 12))
UNLESS = operations("POP_JUMP_IF_FALSE", "POP_JUMP_FORWARD_IF_FALSE")


def own_imports(code):
    """Of one code object. Written by hand because `dis` takes twenty times as long."""
    operation = code.co_code
    if IMPORT.isdisjoint(operation[::2]):
        return []
    typing = code.co_names.index("TYPE_CHECKING") if "TYPE_CHECKING" in code.co_names else -1
    found = []
    constants = [None, None]
    high = skip_to = 0
    is_typing = False
    for at in range(0, len(operation), 2):
        what, argument = operation[at], operation[at + 1] | high
        high = argument << 8 if what in EXTENDED else 0
        if what in CONSTANT:
            constants = [constants[1], code.co_consts[argument]]
        elif what in SMALL:
            constants = [constants[1], argument]
        elif what in IMPORT:
            if at >= skip_to:
                found.append((constants[0], code.co_names[argument], constants[1]))
        elif what in NAME:
            is_typing = argument == typing
        elif what in ATTRIBUTE:
            is_typing = argument >> FLAGS == typing
        elif what in UNLESS:
            if is_typing:
                skip_to = at + 2 + 2 * argument
            is_typing = False
    return found


def absolute(module, is_package, found):
    """The names of modules that `found`, imports of `module`, may mean."""
    for level, name, names in found:
        if level:
            parts = module.split(".")
            parts = parts[: len(parts) + is_package - level]
            if not parts:
                continue
            name = ".".join(parts + ([name] if name else []))
        if name:
            yield name
            for inner in names or ():
                yield f"{name}.{inner}"


def names_in(folder, known={}):
    """The names in a folder; none where it is none."""
    if folder not in known:
        try:
            known[folder] = frozenset(os.listdir(folder))
        except OSError:
            known[folder] = frozenset()
    return known[folder]


class Finder:
    """Finds modules as the interpreter would, without importing their packages."""

    def __init__(self, trees, site):
        latest = range(trees - 1, -1, -1)
        self.top = [(None, LOCAL)]
        for place in [*STANDARD, site]:
            self.top += [(n, f"{TREES}/{n}/source/{place}") for n in latest]
        self.top = [(n, folder) for n, folder in self.top if names_in(folder)]
        self.known = {}

    def find(self, name):
        """(tree, file, folders of the package that it is), or None. A file may be missing."""
        if name not in self.known:
            self.known[name] = self.look(name)
        return self.known[name]

    def look(self, name):
        parent, _, last = name.rpartition(".")
        above = self.find(parent) if parent else (None, None, self.top)
        if not above or "/" in last:
            return None
        places = [(n, folder) for n, folder in above[2] if last in names_in(folder)]
        folders = [(n, f"{folder}/{last}") for n, folder in places]
        folders = [(n, folder) for n, folder in folders if names_in(folder)]
        for n, folder in folders:
            if "__init__.py" in names_in(folder):
                return n, f"{folder}/__init__.py", folders
        for n, folder in above[2]:
            for suffix in SUFFIXES:
                if last + suffix in names_in(folder):
                    return n, f"{folder}/{last}{suffix}", []
        return (None, None, folders) if folders else None


def examine(tree, file):
    """The imports of a source, whose bytecode is written if it is missing."""
    if tree is None:
        with open(file, "rb") as source:
            return imports(compile(source.read(), file, "exec", dont_inherit=True))
    relative = os.path.relpath(file, f"{TREES}/{tree}/source")
    folder, name = os.path.split(relative)
    target = f"{TREES}/{tree}/bytecode/{folder}/__pycache__/{pyc_name(name)}"
    if os.path.exists(target):
        with open(target, "rb") as compiled:
            return imports(marshal.loads(compiled.read()[16:]))
    code, data = pyc(file, f"/{relative}")
    write(target, data)
    return imports(code)


def work(jobs, results):
    """Examines files until there are no more."""
    while True:
        try:
            job = marshal.load(jobs)
        except EOFError:
            return
        try:
            found = examine(*job)
        except (*UNCOMPILABLE, OSError, EOFError, TypeError):
            found = []
        marshal.dump(found, results)
        results.flush()


class Worker:
    """A process that examines one file after the other."""

    def __init__(self, others):
        job_out, job_in = os.pipe()
        result_out, result_in = os.pipe()
        self.module = None
        if os.fork() == 0:
            # Held open here, another's pipe would not tell it that there are no more jobs.
            for other in others:
                os.close(other.jobs.fileno())
            os.close(job_in)
            try:
                work(os.fdopen(job_out, "rb"), os.fdopen(result_in, "wb"))
            finally:
                os._exit(0)
        os.close(job_out)
        os.close(result_in)
        self.jobs = os.fdopen(job_in, "wb")
        self.results = os.fdopen(result_out, "rb")

    def give(self, module, job):
        self.module = module
        marshal.dump(job, self.jobs)
        self.jobs.flush()


class Closure:
    """Everything that a few modules import, followed on every core."""

    def __init__(self, finder):
        self.finder = finder
        self.seen = set()
        self.todo = []

    def add(self, name):
        """Notes a module and the packages around it."""
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if name in self.seen:
                continue
            self.seen.add(name)
            tree, file, _ = self.finder.find(name) or (None, None, [])
            if file is None:
                continue
            if not file.endswith(".py"):
                if tree is not None:
                    print(tree, os.path.relpath(file, f"{TREES}/{tree}/source"), sep="\t", flush=True)
            elif len(self.todo) < MOST_MODULES:
                self.todo.append((name, tree, file))

    def follow(self):
        workers = []
        for _ in range(min(len(os.sched_getaffinity(0)), MOST_WORKERS)):
            workers.append(Worker(workers))
        done = 0
        while True:
            for worker in workers:
                if worker.module is None and done < len(self.todo):
                    name, tree, file = self.todo[done]
                    done += 1
                    try:
                        worker.give(name, (tree, file))
                    except OSError:
                        # It is gone, and is found to be below.
                        pass
            busy = {worker.results.fileno(): worker for worker in workers if worker.module}
            if not busy:
                return
            poll = select.poll()
            for number in busy:
                poll.register(number, select.POLLIN)
            for number, _ in poll.poll():
                worker = busy[number]
                try:
                    found = marshal.load(worker.results)
                except (EOFError, ValueError, TypeError):
                    # A source that ends the interpreter ends no more than its worker.
                    workers.remove(worker)
                    continue
                module, worker.module = worker.module, None
                is_package = bool((self.finder.find(module) or (0, 0, []))[2])
                for name in absolute(module, is_package, found):
                    self.add(name)


def main(_root, trees, site, kind, what):
    closure = Closure(Finder(int(trees), site))
    for name in ALWAYS:
        closure.add(name)
    if kind == "module":
        closure.add(what)
        closure.add(f"{what}.__main__")
    else:
        try:
            if kind == "file":
                with open(f"{ROOT}/{what}", "rb") as file:
                    what = file.read()
            code = compile(what, "<command>", "exec", dont_inherit=True)
        except (*UNCOMPILABLE, OSError):
            # The command will say so itself.
            return
        for name in absolute("", False, imports(code)):
            closure.add(name)
    closure.follow()


main(*sys.argv[1:])
