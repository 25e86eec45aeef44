
// Puts the picture together before inferno's script begins: names.rs and narrow.rs say what the file has. On a box stands its short name, and of that
// the end where there is no room. A search looks at the whole name. The line below the picture has the lines of the tooltip.
var merged_below = "";
function put_together() {
    var table = JSON.parse(document.getElementById("names").textContent);
    if (table.narrowest) merged_below = share(table.narrowest, table.whole[0]);
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
    // A picture of deep stacks is higher than the window: callers are seen first.
    if (!inverted && document.documentElement == svg)
        setTimeout(function() { window.scrollTo(0, svg.height.baseVal.value); }, 0);
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
// The expression of a search, as flametop's own: lower case matches either case; a capital letter, or ^...$ around it, makes it exact.
// What is no expression is searched as it is.
function pattern_of(words) {
    var flags = /\p{Lu}/u.test(words) || /^\^.*\$$/.test(words) ? "" : "i";
    try { return new RegExp(words, flags); } catch (error) { return new RegExp(literally(words), flags); }
}
function literally(text) {
    return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
function forget_search() {
    if (searching) reset_search();
    searching = 0;
}
var search_of_inferno = search;
search = function(words) {
    found_at = -1;
    forget_search();
    matchedtxt.firstChild.nodeValue = "Matched: 0.0%";
    matchedtxt.classList.remove("hide");
    search_of_inferno(pattern_of(words));
    if (merged_below) matchedtxt.firstChild.nodeValue += " of boxes from " + merged_below;
    if (!searching) return;
    var params = get_params();
    params.s = words;
    history.replaceState(null, null, parse_params(params));
};
// On paper, the whole picture is as wide as the page.
window.addEventListener("beforeprint", function() {
    svg.setAttribute("viewBox", "0 0 " + svg.width.baseVal.value + " " + svg.height.baseVal.value);
    svg.setAttribute("preserveAspectRatio", "xMidYMin");
    svg.height_on_screen = svg.getAttribute("height");
    svg.removeAttribute("height");
});
window.addEventListener("afterprint", function() {
    svg.setAttribute("height", svg.height_on_screen);
    svg.removeAttribute("viewBox");
});
g_to_func = function(g) {
    return g.whole || "all";
};
g_to_text = function(g) {
    return find_child(g, "title").textContent.replace(/\n/g, "; ");
};
// Shortens a name to a number of characters, as the screen does: suffixes of compilers go first, then leading parts of a path; the last part
// is cut at its end. Less than three letters and digits say nothing.
function fit(name, room) {
    if (name.length <= room) return name;
    var cut = fit_anyhow(name.replace(/(.)(\.(constprop|isra|part|cold|llvm|lto_priv)(\.\d+)?)+$/, "$1"), room);
    return (cut.match(/[\p{L}\p{N}]/gu) || []).length < 3 ? "" : cut;
}
function fit_anyhow(name, room) {
    if (name.length <= room) return name;
    function ends(text, separator) {
        var found = [];
        text.replace(separator, function(match, at) { found.push(text.substring(at + match.length)); });
        return found;
    }
    function fits(end) { return end.length < room; }
    var segments = ends(name, /::(?![{<])/g), end = segments.find(fits);
    if (end) return "\u2026" + end;
    var last = segments.length ? segments[segments.length - 1] : name;
    if (!segments.length && /\/|\+0x/.test(last)) return "\u2026" + last.substring(last.length - room + 1);
    var word = last.substring(last.lastIndexOf(".") + 1);
    if (word.length < 4 || !/^\p{L}/u.test(word)) word = last;
    else end = ends(last, /\./g).find(fits);
    if (end) return "\u2026" + end;
    return word.length <= room ? word : word.substring(0, room - 1) + "\u2026";
}
update_text_for_elements = function(elements) {
    var character = known_font_width || fontsize * fontwidth, all = frames.attributes.width.value;
    // All reads, then all writes: the browser lays the page out once.
    var texts = [];
    for (var i = 0; i < elements.length; i++) {
        var rect = find_child(elements[i], "rect");
        var room = Math.floor((parseFloat(rect.attributes.width.value) * all / 100 - 3) / character);
        var name = elements[i].short || "all";
        texts.push([format_percent(parseFloat(rect.attributes.x.value) + 300 / all), fit(name, room)]);
    }
    for (var i = 0; i < elements.length; i++) {
        var text = find_child(elements[i], "text");
        text.attributes.x.value = texts[i][0];
        text.textContent = texts[i][1];
    }
};
