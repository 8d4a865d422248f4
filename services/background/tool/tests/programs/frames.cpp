// Coroutines, exceptions that are thrown again and carried, destructors during unwinding, sorting with comparators that throw, text streams.
#include <algorithm>
#include <coroutine>
#include <cstdio>
#include <exception>
#include <iomanip>
#include <list>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

struct Numbers {
    struct promise_type {
        long value = 0;
        std::exception_ptr failed;
        Numbers get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(long v) { value = v; return {}; }
        void return_void() {}
        void unhandled_exception() { failed = std::current_exception(); }
    };
    std::coroutine_handle<promise_type> handle;
    Numbers(std::coroutine_handle<promise_type> h) : handle(h) {}
    Numbers(Numbers &&o) noexcept : handle(o.handle) { o.handle = {}; }
    ~Numbers() { if (handle) handle.destroy(); }
    bool next() { handle.resume(); if (handle.promise().failed) std::rethrow_exception(handle.promise().failed); return !handle.done(); }
    long value() const { return handle.promise().value; }
};
static Numbers collatz(long n) { while (n != 1) { co_yield n; n = n % 2 ? 3 * n + 1 : n / 2; if (n == 52) throw std::domain_error("52"); } }
static Numbers evens(std::vector<long> v) { for (long x : v) if (x % 2 == 0) co_yield x; }

static int unwound;
struct Note { int k; ~Note() noexcept(false) { unwound += k; if (k == 13 && !std::uncaught_exceptions()) throw std::logic_error("thirteen"); } };
static long nest(int depth) {
    Note note{depth};
    try { if (depth % 11 == 0) throw depth; return nest(depth - 1) + depth; }
    catch (long) { return -1; }
    catch (int d) { if (d % 2) throw; throw std::out_of_range(std::to_string(d)); }
}

int main() {
    long sum = 0, failures = 0;
    for (long n = 1; n < 60; n++) try { auto c = collatz(n); while (c.next()) sum += c.value(); } catch (const std::domain_error &e) { failures += e.what()[0]; }
    std::vector<long> v;
    for (long i = 0; i < 500; i++) v.push_back(i * 7919 % 1009);
    auto e = evens(v);
    while (e.next()) sum ^= e.value();
    for (int d = 1; d < 60; d++) try { sum += nest(d); } catch (int) { failures += 100; } catch (const std::exception &x) { failures += long(std::string(x.what()).size()); }
    int compared = 0;
    for (int limit : {100, 1000, 100000}) try { auto w = v; std::sort(w.begin(), w.end(), [&](long a, long b) { if (++compared > limit) throw limit; return a < b; }); sum += w[17]; } catch (int l) { failures += l; }
    std::ostringstream out;
    std::set<std::string> names;
    std::list<std::pair<int, std::string>> list;
    for (int i = 0; i < 200; i++) { out << std::setw(5) << std::hex << i * 31 << std::dec << std::setprecision(3) << i / 7.0 << '\n'; names.insert(std::to_string(i * 17 % 101)); list.emplace_back(i * 13 % 37, std::to_string(i)); }
    list.sort();
    std::istringstream in(out.str());
    std::string word;
    unsigned hash = 1;
    while (in >> word) for (char c : word) hash = hash * 33 + unsigned(c);
    std::printf("%ld %ld %d %u %s %s %d\n", sum, failures, unwound, hash, names.rbegin()->c_str(), list.back().second.c_str(), compared);
}
