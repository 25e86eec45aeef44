
// On a box stands its short name, and of that the end where there is no room. A search looks at the whole name. The line below the picture has
// the lines of the tooltip.
function name_of(g) {
    return find_child(g, "title").textContent.split("\n")[0].replace(/ \([^(]*\)$/, "");
}
g_to_func = name_of;
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
        var name = elements[i].getAttribute("n") || name_of(elements[i]);
        var label = room < 2 ? "" : name.length <= room ? name : "\u2026" + name.substring(name.length - room + 1);
        texts.push([format_percent(parseFloat(rect.attributes.x.value) + 300 / all), label]);
    }
    for (var i = 0; i < elements.length; i++) {
        var text = find_child(elements[i], "text");
        text.attributes.x.value = texts[i][0];
        text.textContent = texts[i][1];
    }
};
