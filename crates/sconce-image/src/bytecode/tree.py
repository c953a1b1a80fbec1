

def compile_tree(source_root, output_root):
    """Compiles every source of an unpacked wheel to OUTPUT/.../__pycache__/name.cpython-3xx.pyc. One
    that is there is not made again, so that a killed compilation goes on where it was."""
    for folder, folders, names in os.walk(source_root):
        folders.sort()
        relative = os.path.relpath(folder, source_root)
        cache = os.path.join(output_root, relative, "__pycache__")
        for name in sorted(names):
            if not name.endswith(".py"):
                continue
            target = os.path.join(cache, pyc_name(name))
            if os.path.exists(target):
                continue
            try:
                _, data = pyc(os.path.join(folder, name), "/" + os.path.join(relative, name))
            except (*UNCOMPILABLE, FileNotFoundError):
                # The last: a link to nothing.
                continue
            write(target, data)


compile_tree(*sys.argv[1:])
