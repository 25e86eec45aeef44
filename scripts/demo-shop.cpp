// A small web shop and its customers, over loopback. scripts/demo-load.sh runs it for the picture in README.md.
//
//   demo-shop SECONDS
//
// Real work in functions whose names tell what they do: requests of nested JSON are parsed, a tree of goods is searched, a page is
// made from a template and compressed, and both sides use the kernel's network. Built with frame pointers and statically, so
// that every frame has a name on any machine.

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#define KEPT __attribute__((noinline))

// The C library's own functions use the frame pointer's register for other things, and would cut the stack off.
namespace net {
KEPT long call(long number, long a, const void *b, long c)
{
#if defined(__x86_64__)
    long result;
    register long flags __asm__("r10") = 0;
    register long none __asm__("r8") = 0;
    register long zero __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(flags), "r"(none), "r"(zero)
                     : "rcx", "r11", "memory");
    return result;
#else
    return syscall(number, a, b, c, 0, 0, 0);
#endif
}

KEPT void send(int connection, std::string_view bytes)
{
    call(SYS_sendto, connection, bytes.data(), long(bytes.size()));
}

KEPT ssize_t receive(int connection, char *buffer, size_t room)
{
    return call(SYS_recvfrom, connection, buffer, long(room));
}
} // namespace net

namespace json {
struct Value {
    std::string text;
    std::vector<std::pair<std::string, Value>> members;
};

struct Parser {
    std::string_view rest;

    KEPT void skip_blanks()
    {
        while (!rest.empty() && (rest[0] == ' ' || rest[0] == '\n' || rest[0] == ',' || rest[0] == ':'))
            rest.remove_prefix(1);
    }

    KEPT std::string parse_string()
    {
        std::string out;
        for (rest.remove_prefix(1); !rest.empty() && rest[0] != '"'; rest.remove_prefix(1))
            out += rest[0];
        if (!rest.empty())
            rest.remove_prefix(1);
        return out;
    }

    KEPT Value parse_object()
    {
        Value object;
        rest.remove_prefix(1);
        for (skip_blanks(); !rest.empty() && rest[0] != '}'; skip_blanks()) {
            std::string name = parse_string();
            skip_blanks();
            object.members.emplace_back(std::move(name), parse_value());
        }
        if (!rest.empty())
            rest.remove_prefix(1);
        return object;
    }

    KEPT Value parse_value()
    {
        skip_blanks();
        if (!rest.empty() && rest[0] == '{')
            return parse_object();
        return Value{parse_string(), {}};
    }
};
} // namespace json

namespace goods {
struct Node {
    uint32_t key;
    std::string name;
    std::unique_ptr<Node> left, right;
};

KEPT void insert(std::unique_ptr<Node> &node, uint32_t key)
{
    if (!node)
        node.reset(new Node{key, "article " + std::to_string(key * 2654435761u), {}, {}});
    else
        insert(key < node->key ? node->left : node->right, key);
}

KEPT bool matches(const Node &node, std::string_view wanted)
{
    return node.name.find(wanted) != std::string::npos;
}

KEPT void search(const Node *node, std::string_view wanted, std::vector<const Node *> &found)
{
    if (!node || found.size() >= 60)
        return;
    search(node->left.get(), wanted, found);
    if (matches(*node, wanted))
        found.push_back(node);
    search(node->right.get(), wanted, found);
}

KEPT void by_name(std::vector<const Node *> &found)
{
    std::sort(found.begin(), found.end(), [](auto *a, auto *b) { return a->name < b->name; });
}
} // namespace goods

namespace page {
KEPT void escape(std::string_view text, std::string &out)
{
    for (char c : text) {
        if (c == '<')
            out += "&lt;";
        else if (c == '&')
            out += "&amp;";
        else
            out += c;
    }
}

struct Template {
    KEPT void row(const goods::Node &node, std::string &out) const
    {
        out += "<tr><td>";
        escape(node.name, out);
        out += "</td></tr>\n";
    }

    KEPT void table(const std::vector<const goods::Node *> &found, std::string &out) const
    {
        for (int column = 0; column < 3; column++)
            for (auto *node : found)
                row(*node, out);
    }

    KEPT std::string render(const std::vector<const goods::Node *> &found) const
    {
        std::string out = "<html><table>";
        table(found, out);
        return out + "</table></html>";
    }
};
} // namespace page

namespace deflate {
KEPT size_t longest_match(std::string_view text, size_t at, size_t from)
{
    size_t length = 0;
    while (at + length < text.size() && text[from + length] == text[at + length] && length < 258)
        length++;
    return length;
}

KEPT size_t find_match(std::string_view text, size_t at, std::vector<int> &heads)
{
    uint32_t hash = (uint8_t(text[at]) * 131u + uint8_t(text[at + 1])) * 131u + uint8_t(text[at + 2]);
    int &head = heads[hash % heads.size()];
    size_t length = head >= 0 ? longest_match(text, at, size_t(head)) : 0;
    head = int(at);
    return length;
}

KEPT std::string compress(std::string_view text)
{
    std::vector<int> heads(1024, -1);
    std::string out;
    for (size_t at = 0; at + 3 < text.size();) {
        size_t length = find_match(text, at, heads);
        out += text[at];
        at += length > 3 ? length : 1;
    }
    return out;
}
} // namespace deflate

struct Shop {
    std::unique_ptr<goods::Node> goods;
    page::Template look;

    KEPT json::Value read_request(std::string_view text) const { return json::Parser{text}.parse_value(); }

    KEPT std::string list_goods(std::string_view wanted) const
    {
        std::vector<const goods::Node *> found;
        goods::search(goods.get(), wanted, found);
        goods::by_name(found);
        return look.render(found);
    }

    KEPT std::string handle(std::string_view text) const
    {
        json::Value request = read_request(text);
        return deflate::compress(list_goods(request.members.empty() ? "7" : request.members[0].second.text));
    }

    KEPT void serve(int connection) const
    {
        char buffer[4096];
        for (ssize_t got; (got = net::receive(connection, buffer, sizeof buffer)) > 0;) {
            std::string reply = handle({buffer, size_t(got)});
            // In pieces, like a server that sends while it compresses.
            for (size_t at = 0; at < reply.size(); at += 80)
                net::send(connection, std::string_view(reply).substr(at, 80));
            net::send(connection, "\4");
        }
    }
};

static Shop shop;
static sockaddr_in address = {};

static int connect_to_shop()
{
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0)
        exit(1);
    return connection;
}

KEPT static void buy(int connection, unsigned number)
{
    std::string request = "{\"wanted\": \"" + std::to_string(number % 90 + 10) + "\", \"basket\": ";
    for (int depth = 0; depth < 6; depth++)
        request += "{\"article\": \"" + std::string(24, 'a') + "\", \"with\": ";
    request += "\"nothing\"" + std::string(6, '}') + "}";
    net::send(connection, request);
    char buffer[512];
    for (ssize_t got; (got = net::receive(connection, buffer, sizeof buffer)) > 0 && buffer[got - 1] != '\4';)
        ;
}

KEPT static void *customer(void *)
{
    int connection = connect_to_shop(), on = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (unsigned number = 0;; number++)
        buy(connection, number);
}

KEPT static void *clerk(void *connection)
{
    int on = 1, number = int(reinterpret_cast<intptr_t>(connection));
    setsockopt(number, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    shop.serve(number);
    return nullptr;
}

static void start(const char *name, void *(*work)(void *), void *with)
{
    pthread_t thread;
    if (pthread_create(&thread, nullptr, work, with) != 0)
        exit(1);
    pthread_setname_np(thread, name);
}

int main(int, char **arguments)
{
    alarm(unsigned(atoi(arguments[1] ? arguments[1] : "20")));
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(listening, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0 || listen(listening, 8) != 0
        || getsockname(listening, reinterpret_cast<sockaddr *>(&address), &length) != 0)
        return 1;
    if (fork() == 0) {
        alarm(unsigned(atoi(arguments[1] ? arguments[1] : "20")));
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        prctl(PR_SET_NAME, "customers");
        start("customer", customer, nullptr);
        customer(nullptr);
    }
    uint32_t key = 1;
    for (int count = 0; count < 3000; count++)
        goods::insert(shop.goods, key = key * 1664525u + 1013904223u);
    for (;;)
        start("clerk", clerk, reinterpret_cast<void *>(intptr_t(accept(listening, nullptr, nullptr))));
}
