
// The table of functions beside the picture, and the search in both.
(function() {
    var table = JSON.parse(document.getElementById("names").textContent);
    var find = document.getElementById("find"), body = document.getElementById("rows");
    var is_compared = table.whole.length > 1;
    var rows = table.functions.map(function(row) {
        var name = table.names[row[0]], kind = table.kinds[row[1]];
        return {short: name[0], whole: name[2] || name[0], object: name[1] ? table.objects[name[1] - 1] : "", kind: kind,
            line: name[3] ? table.files[name[3] - 1] + ":" + name[4] : "", own: row[2], total: row[3], own_before: row[4] || 0, total_before: row[5] || 0};
    });
    function share(weight, whole) {
        return (weight * 100 / (whole || 1)).toFixed(2) + "%";
    }
    function change(now, before) {
        return now / (table.whole[0] || 1) - before / (table.whole[1] || 1);
    }
    function signed(part) {
        return (part > 0 ? "+" : "") + (part * 100).toFixed(2) + "%";
    }
    var columns = [
        {head: "self", by: function(row) { return row.own; }, text: function(row) { return share(row.own, table.whole[0]); }},
        {head: table.unit, by: function(row) { return row.own; }, text: function(row) { return row.own.toLocaleString("en"); }},
        {head: "total", by: function(row) { return row.total; }, text: function(row) { return share(row.total, table.whole[0]); }},
        {head: table.unit, by: function(row) { return row.total; }, text: function(row) { return row.total.toLocaleString("en"); }}
    ];
    if (is_compared)
        columns = [
            {head: "self", by: function(row) { return row.own; }, text: function(row) { return share(row.own, table.whole[0]); }},
            {head: "change", by: function(row) { return Math.abs(change(row.own, row.own_before)); },
                text: function(row) { return signed(change(row.own, row.own_before)); }},
            {head: "total", by: function(row) { return row.total; }, text: function(row) { return share(row.total, table.whole[0]); }},
            {head: "change", by: function(row) { return Math.abs(change(row.total, row.total_before)); },
                text: function(row) { return signed(change(row.total, row.total_before)); }}
        ];
    columns.push(
        {head: "function", kind: "name", by: function(row) { return row.short; }, text: function(row) { return row.short; }},
        {head: "object", kind: "object", by: function(row) { return row.object; }, text: function(row) { return row.object; }});

    var FEW = 200, shown = FEW, sorted_by = columns[is_compared ? 1 : 0], is_reversed = false, marked = null;

    function matching() {
        if (!find.value) return rows;
        var pattern = pattern_of(find.value);
        return rows.filter(function(row) { return pattern.test(row.whole); });
    }
    function element(name, text, kind) {
        var made = document.createElement(name);
        if (text !== undefined) made.textContent = text;
        if (kind) made.className = kind;
        return made;
    }
    function swatch(kind) {
        var of = "http://www.w3.org/2000/svg", made = document.createElementNS(of, "svg"), box = document.createElementNS(of, "rect");
        made.setAttribute("class", "c" + kind[1]);
        box.setAttribute("width", 10);
        box.setAttribute("height", 10);
        made.appendChild(box);
        return made;
    }
    function show() {
        var found = matching().slice(), by = sorted_by.by;
        found.sort(function(a, b) {
            var one = by(a), other = by(b);
            var order = typeof one == "number" ? other - one : one < other ? -1 : one > other ? 1 : 0;
            return is_reversed ? -order : order;
        });
        body.replaceChildren.apply(body, found.slice(0, shown).map(function(row) {
            var line = element("tr");
            line.tabIndex = 0;
            line.title = row.whole + "\n" + row.kind[0] + (row.line ? "\nhottest line " + row.line : "");
            line.row = row;
            columns.forEach(function(column) {
                var cell = element("td", column.text(row), column.kind);
                if (column.kind == "name") cell.prepend(swatch(row.kind));
                line.appendChild(cell);
            });
            if (row.whole === marked) line.classList.add("marked");
            return line;
        }));
        var count = document.getElementById("count"), all = table.all;
        var words = found.length.toLocaleString("en") + (find.value ? " of " + rows.length.toLocaleString("en") : "") + " functions";
        if (all > rows.length)
            words += " (" + (all - rows.length).toLocaleString("en") + " with less weight of their own are not listed)";
        count.textContent = words + " ";
        if (found.length > shown) {
            var more = element("button", "show all");
            more.onclick = function() { shown = Infinity; show(); };
            count.appendChild(more);
        }
        Array.from(document.getElementById("heads").children).forEach(function(head, number) {
            if (columns[number] === sorted_by) head.setAttribute("aria-sort", is_reversed ? "ascending" : "descending");
            else head.removeAttribute("aria-sort");
        });
    }
    columns.forEach(function(column) {
        var head = element("th", undefined, column.kind), button = element("button", column.head);
        button.onclick = function() {
            is_reversed = sorted_by === column && !is_reversed;
            sorted_by = column;
            show();
        };
        head.appendChild(button);
        document.getElementById("heads").appendChild(head);
    });

    // The picture's search shows boxes of what the table has.
    function highlight(words) {
        if (words) return search(words);
        forget_search();
        document.getElementById("matched").classList.add("hide");
    }
    function mark(whole) {
        marked = whole;
        Array.from(body.children).forEach(function(line) {
            var is_it = line.row.whole === whole;
            line.classList.toggle("marked", is_it);
            // Only the table scrolls: the picture stays where it is.
            if (is_it) document.getElementById("scroll").scrollTop = Math.max(0, line.offsetTop - 60);
        });
    }
    function pick(line) {
        var is_new = line.row.whole !== marked;
        mark(is_new ? line.row.whole : null);
        highlight(is_new ? "^" + literally(line.row.whole) + "$" : find.value);
    }
    body.addEventListener("click", function(event) {
        var line = event.target.closest("tr");
        if (line) pick(line);
    });
    body.addEventListener("keydown", function(event) {
        if (event.key == "Enter" && event.target.row) pick(event.target);
    });
    window.addEventListener("click", function(event) {
        var box = find_group(event.target);
        if (box && box.whole) mark(box.whole);
    });
    var waiting;
    find.addEventListener("input", function() {
        clearTimeout(waiting);
        waiting = setTimeout(function() {
            marked = null;
            show();
            highlight(find.value);
        }, 100);
    });
    window.addEventListener("keydown", function(event) {
        if (event.key != "Escape") return;
        if (find.value || marked) {
            find.value = "";
            marked = null;
            show();
            highlight("");
        } else {
            document.getElementById("unzoom").dispatchEvent(new MouseEvent("click", {bubbles: true}));
        }
    });
    // Ctrl-F goes to the one field for both.
    search_prompt = function() {
        find.focus();
        find.select();
    };
    show();
    init();
    // Deep stacks are higher than the window: their callers are seen first.
    var picture = document.getElementById("picture");
    if (!inverted) picture.scrollTop = picture.scrollHeight;
})();
