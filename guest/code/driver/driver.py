# Runs pieces of Python code that come on descriptor 3, one JSON string in each
# line, one after the other in one module. What they display and how they end
# goes to descriptor 4, one JSON object in each line; after each piece a mark
# goes to both outputs. Used where there is no Jupyter kernel for Python.
def _main(mark):
    import ast, asyncio, base64, builtins, inspect, json, linecache, os, re, signal, sys, traceback, types

    requests = os.fdopen(3, "r", encoding="utf-8")
    replies = os.fdopen(4, "w", encoding="utf-8")
    outputs = [os.dup(1), os.dup(2)]
    for fd in (3, 4, *outputs):
        os.set_inheritable(fd, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    sys.argv = [""]
    os.environ.setdefault("MPLBACKEND", "agg")
    sys.path[0] = ""  # where code is, and not where this file is
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    space = main.__dict__
    loop = None

    formats = [
        ("text/html", "_repr_html_"), ("text/markdown", "_repr_markdown_"), ("text/latex", "_repr_latex_"),
        ("image/svg+xml", "_repr_svg_"), ("image/png", "_repr_png_"), ("image/jpeg", "_repr_jpeg_"),
        ("application/pdf", "_repr_pdf_"), ("application/json", "_repr_json_"),
        ("application/javascript", "_repr_javascript_"),
    ]

    def send(**message):
        replies.write(json.dumps(message, default=repr) + "\n")
        replies.flush()

    def plain(value):
        if isinstance(value, tuple):  # with metadata
            value = value[0]
        if isinstance(value, (bytes, bytearray)):
            return base64.b64encode(value).decode("ascii")
        return value

    def bundle(value):
        data = {}
        if not inspect.isclass(value):
            whole = getattr(value, "_repr_mimebundle_", None)
            if callable(whole):
                found = whole()
                data.update((found[0] if isinstance(found, tuple) else found) or {})
            for mime, name in formats:
                method = getattr(value, name, None)
                if mime not in data and callable(method):
                    try:
                        found = plain(method())
                    except NotImplementedError:
                        found = None
                    if found is not None:
                        data[mime] = found
        data.setdefault("text/plain", repr(value))
        return {mime: plain(found) for mime, found in data.items()}

    def display(*values):
        for value in values:
            send(data=bundle(value))

    def figures():
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        import io

        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            png = io.BytesIO()
            figure.savefig(png, format="png", bbox_inches="tight")
            send(data={"image/png": base64.b64encode(png.getvalue()).decode("ascii"), "text/plain": repr(figure)})
        pyplot.close("all")

    def shell(match):
        line = match["line"]
        if match["kind"] == "%":
            line = sys.executable + " -m " + line
        return match["indent"] + "__import__('os').system(%r)" % line

    lines = re.compile(r"^(?P<indent>[ \t]*)(?:(?P<kind>%)(?=pip )|!)(?P<line>.+)$", re.M)

    def parse(code, name):
        try:
            return ast.parse(code, name)
        except SyntaxError:
            changed = lines.sub(shell, code)
            if changed == code:
                raise
            return ast.parse(changed, name)

    def run(code, name, count):
        nonlocal loop
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        tree = parse(code, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        value = None
        for part, mode in ((tree, "exec"), (last, "eval")):
            if part is None:
                continue
            compiled = compile(part, name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            value = eval(compiled, space)
            if compiled.co_flags & inspect.CO_COROUTINE:
                loop = loop or asyncio.new_event_loop()
                value = loop.run_until_complete(value)
        if last is not None and value is not None and not code.rstrip().endswith(";"):
            space["_"] = value
            send(data=bundle(value), value=True)
        figures()

    def failure(error):
        trace = error.__traceback__
        while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell "):
            trace = trace.tb_next
        return {
            "name": type(error).__name__,
            "value": str(error),
            "traceback": "".join(traceback.format_exception(type(error), error, trace)),
        }

    builtins.display = display
    count = 0
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in requests:
        code = json.loads(line)
        error = None
        if code["count"]:
            count += 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                send(begin=True)
                run(code["code"], "<cell %d>" % count, count)
            finally:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        except BaseException as e:
            error = failure(e)
        for stream, fd in zip((sys.stdout, sys.stderr), outputs):
            try:
                stream.flush()
            except Exception:
                pass
            os.write(fd, mark.encode())
        send(end=True, error=error, count=count)


import sys

_main(sys.argv[1])
