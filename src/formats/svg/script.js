
// Puts the picture together before inferno's script begins: names.rs and narrow.rs say what the file has. On a box stands its short name, and of that
// the end where there is no room. A search looks at the whole name. The line below the picture has the lines of the tooltip.
function put_together() {
    var table = JSON.parse(document.getElementById("names").textContent);
    var of = "http://www.w3.org/2000/svg", fg = "http://github.com/jonhoo/inferno";
    var boxes = document.getElementById("frames"), narrow = document.getElementById("narrow");
    function share(weight, whole) {
        return (weight * 100 / (whole || 1)).toFixed(2) + "%";
    }
    // The box says its name and weights itself; inferno has drawn the box of everything without.
    function dress(g, text, weight) {
        var parts = /^([0-9a-z]+)(?:(!)|-(\d+))?(?:~(\d+))?$/.exec(text);
        if (!parts) return;
        var name = table.names[parseInt(parts[1], 36)], own = parts[2] ? weight : +(parts[3] || 0);
        g.short = name[0];
        g.whole = name[2] || name[0];
        var lines = [g.whole + " (" + weight.toLocaleString("en") + " " + table.unit + ", " + share(weight, table.whole[0]) + ")",
            "self " + own.toLocaleString("en") + " " + table.unit + ", " + share(own, table.whole[0])];
        if (parts[4])
            lines.push(share(weight, table.whole[0]) + " now, " + share(+parts[4], table.whole[1]) + " before");
        if (name[1])
            lines.push(table.objects[name[1] - 1]);
        if (name[3])
            lines.push("hottest line " + table.files[name[3] - 1] + ":" + name[4]);
        find_child(g, "title").textContent = lines.join("\n");
    }
    function add(parent, kind, attributes) {
        var element = document.createElementNS(of, kind);
        for (var name in attributes)
            element.setAttribute(name, attributes[name]);
        parent.appendChild(element);
        return element;
    }
    // All of them have a text and a colour that a search can change.
    for (var i = 0; i < boxes.children.length; i++) {
        var g = boxes.children[i], rect = find_child(g, "rect");
        rect.setAttribute("fill", "inherit");
        // A page of HTML knows no name spaces of attributes.
        ["x", "w"].forEach(function(name) {
            var weight = rect.getAttribute("fg:" + name);
            rect.removeAttribute("fg:" + name);
            rect.setAttributeNS(fg, "fg:" + name, weight);
        });
        if (!find_child(g, "text"))
            add(g, "text", {x: rect.getAttribute("x"), y: +rect.getAttribute("y") + 10.5});
        dress(g, g.getAttribute("b") || "", +rect.getAttribute("fg:w"));
    }
    var all = +boxes.getAttribute("total_samples");
    for (var path = narrow.firstElementChild; path; path = path.nextElementSibling) {
        var step = /([Mm])(\d+) (\d+)h(\d+)/g, texts = path.getAttribute("b").split(" "), x = 0, y = 0, found;
        for (var i = 0; (found = step.exec(path.getAttribute("d"))); i++) {
            var weight = +found[4];
            x = found[1] == "M" ? +found[2] : x + +found[2];
            y = found[1] == "M" ? +found[3] : y;
            var made = add(boxes, "g", {"class": path.getAttribute("class"), b: texts[i]});
            add(made, "title", {});
            var box = add(made, "rect",
                {x: format_percent(100 * x / all), y: y, width: format_percent(100 * weight / all), height: 15, fill: "inherit"});
            box.setAttributeNS(fg, "fg:x", x);
            box.setAttributeNS(fg, "fg:w", weight);
            add(made, "text", {x: box.getAttribute("x"), y: y + 10.5});
            dress(made, texts[i], weight);
            x += weight;
        }
    }
    narrow.remove();
}
var init_of_inferno = init;
init = function(evt) {
    put_together();
    init_of_inferno(evt);
};
// Keys: n and N zoom to the next box that the search has found and to the one before, Escape zooms out.
var found_at = -1;
function zoom_to_found(by) {
    var found = Array.from(frames.children).filter(function(g) {
        return find_child(g, "rect").getAttribute("fill") == searchcolor;
    });
    function number(g, name) {
        return +find_child(g, "rect").getAttribute(name);
    }
    // From left to right, callers first.
    found.sort(function(a, b) {
        return number(a, "fg:x") - number(b, "fg:x") || number(b, "fg:w") - number(a, "fg:w");
    });
    if (!found.length) return;
    found_at = (Math.max(found_at, by > 0 ? -1 : 0) + by + found.length) % found.length;
    unzoom();
    zoom(found[found_at]);
}
window.addEventListener("keydown", function(event) {
    var types = event.target.tagName == "INPUT";
    if (types || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key == "n") zoom_to_found(1);
    if (event.key == "N") zoom_to_found(-1);
    // A page has more to undo.
    if (event.key == "Escape" && !document.getElementById("find"))
        unzoom();
});
var search_of_inferno = search;
search = function(term) {
    found_at = -1;
    search_of_inferno(term);
};
g_to_func = function(g) {
    return g.whole || "all";
};
g_to_text = function(g) {
    return find_child(g, "title").textContent.replace(/\n/g, "; ");
};
update_text_for_elements = function(elements) {
    var character = known_font_width || fontsize * fontwidth, all = frames.attributes.width.value;
    // All reads, then all writes: the browser lays the page out once.
    var texts = [];
    for (var i = 0; i < elements.length; i++) {
        var rect = find_child(elements[i], "rect");
        var room = Math.floor((parseFloat(rect.attributes.width.value) * all / 100 - 3) / character);
        var name = elements[i].short || "all";
        var label = room < 2 ? "" : name.length <= room ? name : "\u2026" + name.substring(name.length - room + 1);
        texts.push([format_percent(parseFloat(rect.attributes.x.value) + 300 / all), label]);
    }
    for (var i = 0; i < elements.length; i++) {
        var text = find_child(elements[i], "text");
        text.attributes.x.value = texts[i][0];
        text.textContent = texts[i][1];
    }
};
