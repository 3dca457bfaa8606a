# Runs once in each Python interpreter, before a client's code: it begins in the home of
# the user, and describes what a table or a chart contains besides how it looks.
def _bothy_prelude():
    import os
    import re
    from decimal import Context, Decimal

    if os.getcwd() == "/workspace":
        os.chdir(os.path.expanduser("~"))
    try:
        ip = get_ipython()
        from IPython.core.formatters import JSONFormatter
    except (NameError, ImportError):
        return

    def plain(value):
        if type(value).__name__ == "datetime64":
            return str(value.astype("datetime64[s]"))
        if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
            value = value.item()
        if hasattr(value, "isoformat"):
            return value.isoformat()
        if isinstance(value, float) and value - value != 0:  # neither finite nor JSON
            return None
        if isinstance(value, (str, int, float, bool)) or value is None:
            return value
        return str(value)

    def number(value):
        value = plain(value)
        return float(value) if isinstance(value, (int, float)) else value

    def rounded(value):
        value = Decimal(str(value))  # to about eight digits, without the dust of computing
        return float(Context(prec=max(1, 8 - value.adjusted())).plus(value)) if value.is_finite() else None

    def named(label, kind):
        return re.sub("^_(?:child|container)([0-9]+)$", kind + r" \1", label)

    def table(frame):
        return {str(name): [plain(v) for v in frame[name].tolist()] for name in frame.columns}

    def texts(ticks):
        return [t.get_text() for t in ticks]

    def axis(ax, which):
        label = getattr(ax, "get_%slabel" % which)() or None
        unit = re.search(r"\s\((.*?)\)|\[(.*?)\]", label or "")
        return {which + "_label": label, which + "_unit": unit and (unit.group(1) or unit.group(2))}

    def scale(ax, which):
        ticks = getattr(ax, "get_%sticks" % which)()
        name = getattr(ax, "get_%sscale" % which)()
        converter = type(getattr(ax, which + "axis").get_major_locator()).__name__
        if "Date" in converter:
            import matplotlib.dates

            ticks = [matplotlib.dates.num2date(t).isoformat() for t in ticks]
            name = "datetime"
        elif "Category" in converter:
            name = "categorical"
        return {
            which + "_ticks": [number(t) for t in ticks],
            which + "_tick_labels": texts(getattr(ax, "get_%sticklabels" % which)()),
            which + "_scale": name,
        }

    def flat(ax, kind, elements, across=False):
        found = {"type": kind, "title": ax.get_title() or None, **axis(ax, "x"), **axis(ax, "y"), "elements": elements}
        if across:
            for name in ("label", "unit"):
                found["x_" + name], found["y_" + name] = found["y_" + name], found["x_" + name]
        return found

    def points(ax, kind, series):
        return {**flat(ax, kind, series), **scale(ax, "x"), **scale(ax, "y")}

    def numbers(values):
        return [number(v) for v in values]

    def lines(ax):
        return [
            {"label": named(l.get_label(), "Line"), "points": list(zip(numbers(l.get_xdata()), numbers(l.get_ydata())))} for l in ax.get_lines()
        ]

    def scatters(ax):
        from matplotlib.collections import PathCollection

        return [
            {"label": c.get_label(), "points": [[number(x), number(y)] for x, y in c.get_offsets()]}
            for c in ax.collections
            if isinstance(c, PathCollection)
        ]

    def pie(ax, wedges):
        return {
            "type": "pie",
            "title": ax.get_title() or None,
            "elements": [
                {"label": w.get_label(), "angle": rounded(abs(w.theta2 - w.theta1)), "radius": number(w.r)} for w in wedges
            ],
        }

    def bars(ax):
        from matplotlib.container import BarContainer

        found, across = [], False
        for group in ax.containers:
            if not isinstance(group, BarContainer):
                continue
            across = getattr(group, "orientation", "vertical") == "horizontal"
            names = texts(ax.get_yticklabels() if across else ax.get_xticklabels())
            for i, bar in enumerate(group.patches):
                at = bar.get_y() + bar.get_height() / 2 if across else bar.get_x() + bar.get_width() / 2
                label = names[i] if len(names) == len(group.patches) else str(plain(at))
                value = bar.get_width() if across else bar.get_height()
                found.append({"label": label, "group": named(group.get_label(), "Group"), "value": number(value)})
        return flat(ax, "bar", found, across) if found else None

    def boxes(ax, across):
        # A box plot is a path for each box, two whiskers, two caps, a median, and the fliers.
        from matplotlib.patches import PathPatch

        def at(line):
            return line.get_ydata() if across else line.get_xdata()

        def values(line):
            return line.get_xdata() if across else line.get_ydata()

        whole = [l for l in ax.get_lines() if len(at(l)) or l.get_marker() not in ("None", None)]
        frames = [l for l in whole if len(at(l)) == 5] or [p for p in ax.patches if isinstance(p, PathPatch)]
        names = texts(ax.get_yticklabels() if across else ax.get_xticklabels())
        found = []
        for i, frame in enumerate(frames):
            path = frame.get_path().vertices
            xs, ys = (path[:, 1], path[:, 0]) if across else (path[:, 0], path[:, 1])
            low, high, left, right = min(ys), max(ys), min(xs), max(xs)
            inside = [l for l in whole if l is not frame and len(at(l)) and left <= sum(at(l)) / len(at(l)) <= right]
            flat_lines = [l for l in inside if len(values(l)) == 2 and values(l)[0] == values(l)[1]]
            width = right - left  # which the median has, and the caps have not
            middle = [values(l)[0] for l in flat_lines if abs(max(at(l)) - min(at(l)) - width) < width / 100]
            if not middle:
                return None
            ends = [values(l)[0] for l in flat_lines]
            outliers = [v for l in inside if l.get_marker() not in ("None", None, "") for v in values(l)]
            found.append(
                {
                    "label": names[i] if i < len(names) else str(i + 1),
                    "min": rounded(min(ends + [low])),
                    "first_quartile": rounded(low),
                    "median": rounded(middle[0]),
                    "third_quartile": rounded(high),
                    "max": rounded(max(ends + [high])),
                    "outliers": [rounded(v) for v in outliers],
                }
            )
        return flat(ax, "box_and_whisker", found, across) if found else None

    def chart_of(ax):
        from matplotlib.patches import Wedge

        wedges = [p for p in ax.patches if isinstance(p, Wedge)]
        if wedges:
            return pie(ax, wedges)
        found = ax.containers and bars(ax)
        if found:
            return found
        dots = scatters(ax)
        if dots:
            return points(ax, "scatter", dots)
        found = boxes(ax, False) or boxes(ax, True)
        if found:
            return found
        if ax.get_lines():
            return points(ax, "line", lines(ax))
        return flat(ax, "unknown", [])

    def chart(figure):
        charts = [chart_of(ax) for ax in figure.axes] if any(ax.has_data() for ax in figure.axes) else []
        if len(charts) == 1:
            return charts[0]
        if charts:
            return {"type": "superchart", "title": figure._suptitle.get_text() if figure._suptitle else None, "elements": charts}

    def formatter(mime, kinds, tell):
        # By name and not registered by type: that would import the module, and the
        # backend of matplotlib takes what is registered for its figures away.
        class Formatter(JSONFormatter):
            def __call__(self, value):
                if any((c.__module__.partition(".")[0], c.__name__) == kinds for c in type(value).__mro__):
                    try:
                        return tell(value)
                    except Exception:
                        return None

        found = Formatter(parent=ip.display_formatter)
        found.format_type = mime
        ip.display_formatter.formatters[mime] = found

    formatter("application/vnd.e2b.data.v1+json", ("pandas", "DataFrame"), table)
    formatter("application/vnd.e2b.chart.v1+json", ("matplotlib", "Figure"), chart)


_bothy_prelude()
del _bothy_prelude
