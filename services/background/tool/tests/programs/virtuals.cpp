// Virtual and multiple inheritance, dynamic casts, pointers to members, std::function, static constructors, containers.
#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <queue>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <variant>
#include <vector>

struct Registry {
    std::map<std::string, int> names;
    Registry() { for (int i = 0; i < 100; i++) names["n" + std::to_string(i * 7 % 100)] = i; }
    ~Registry() { long s = 0; for (auto &[k, v] : names) s += v * long(k.size()); std::printf("registry %ld\n", s); }
};
static Registry registry;
static std::vector<int> primes = [] { std::vector<int> p; for (int n = 2; p.size() < 200; n++) if (std::none_of(p.begin(), p.end(), [n](int q) { return n % q == 0; })) p.push_back(n); return p; }();

struct Base { virtual ~Base() = default; virtual long value(long x) = 0; int tag = 1; };
struct Left : virtual Base { long value(long x) override { return x * 3 + tag; } int l = 5; };
struct Right : virtual Base { long other(long x) const { return x ^ r; } int r = 9; };
struct Both final : Left, Right { long value(long x) override { return Left::value(x) + other(x); } };
struct Alone final : Base { long value(long x) override { return x >> 1; } };

static long run(Base &b, long x) {
    if (auto *both = dynamic_cast<Both *>(&b)) return both->value(x) + both->l;
    if (typeid(b) == typeid(Alone)) return b.value(x) * 2;
    return b.value(x);
}
template <class... F> struct overload : F... { using F::operator()...; };
template <class... F> overload(F...) -> overload<F...>;

int main() {
    std::vector<std::unique_ptr<Base>> all;
    for (int i = 0; i < 60; i++) { if (i % 3 == 0) all.push_back(std::make_unique<Both>()); else if (i % 3 == 1) all.push_back(std::make_unique<Left>()); else all.push_back(std::make_unique<Alone>()); all.back()->tag = i; }
    long x = 1;
    for (int round = 0; round < 40; round++) for (auto &b : all) x = (x + run(*b, x & 0xffff)) % 1000000007;
    long (Base::*pointer)(long) = &Base::value;
    int Right::*field = &Right::r;
    Both both;
    both.*field += 2;
    for (int i = 0; i < 100; i++) x = (x + (both.*pointer)(i)) % 1000000007;
    std::array<std::function<long(long)>, 3> fs{[&](long v) { return v + primes[v % 200]; }, [x](long v) { return v ^ x; }, std::negate<long>()};
    for (int i = 0; i < 500; i++) x = std::abs(fs[i % 3](x)) % 1000000007;
    std::unordered_map<long, std::string> hashed;
    for (int i = 0; i < 1000; i++) hashed[x * i % 997] += char('a' + i % 26);
    std::size_t longest = 0;
    for (auto &[k, s] : hashed) longest = std::max(longest, s.size() + k % 3);
    std::priority_queue<int, std::vector<int>, std::greater<>> heap;
    std::deque<int> line;
    for (int i = 0; i < 1000; i++) { heap.push(primes[i * 37 % 200] + i); if (i % 3 == 0) { line.push_front(heap.top()); heap.pop(); } if (i % 7 == 0 && !line.empty()) line.pop_back(); }
    std::vector<std::variant<int, std::string, double>> mixed;
    for (int i = 0; i < 300; i++) { if (i % 3 == 0) mixed.emplace_back(i); else if (i % 3 == 1) mixed.emplace_back(std::to_string(i)); else mixed.emplace_back(i / 4.0); }
    double d = 0;
    for (auto &m : mixed) d += std::visit(overload{[](int i) { return double(i); }, [](const std::string &s) { return double(s.size()); }, [](double f) { return f; }}, m);
    std::printf("%ld %zu %zu %d %ld %.3f\n", x, hashed.size(), longest, heap.top(), std::accumulate(line.begin(), line.end(), 0L), d);
}
