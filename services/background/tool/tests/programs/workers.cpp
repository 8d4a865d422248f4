// Threads of C++: mutexes, conditions, futures that carry exceptions, variables of a thread with constructors and destructors, atomics, once.
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::atomic<long> total, ended;
struct Own {
    std::vector<long> seen;
    ~Own() { ended += std::accumulate(seen.begin(), seen.end(), 0L); }
};
static thread_local Own own;
static thread_local int count = 0;
static std::once_flag once;
static std::vector<int> shared;

static long task(int n) {
    std::call_once(once, [] { for (int i = 0; i < 1000; i++) shared.push_back(i * 31 % 101); });
    long s = 0;
    for (int i = 0; i < 1000; i++) { s += shared[(i * n) % 1000]; if (++count % 50 == 0) own.seen.push_back(s % 13); }
    total.fetch_add(s, std::memory_order_relaxed);
    if (n % 5 == 4) throw std::runtime_error("task " + std::to_string(n));
    return s;
}

int main() {
    std::mutex lock;
    std::condition_variable_any changed;
    int turn = 0;
    std::string order;
    std::vector<std::thread> threads;
    for (int k = 0; k < 3; k++) threads.emplace_back([&, k] {
        for (int i = 0; i < 30; i++) {
            std::unique_lock hold(lock);
            changed.wait(hold, [&] { return turn % 3 == k; });
            order += char('a' + k);
            turn++;
            changed.notify_all();
        }
    });
    for (auto &t : threads) t.join();
    std::vector<std::future<long>> futures;
    for (int n = 0; n < 20; n++) futures.push_back(std::async(std::launch::async, task, n));
    long s = 0;
    int failed = 0;
    for (auto &f : futures) try { s += f.get(); } catch (const std::exception &e) { failed += int(std::string(e.what()).size()); }
    std::promise<int> promise;
    std::thread setter([&] { promise.set_value(7); });
    int got = promise.get_future().get();
    setter.join();
    std::printf("%s %ld %d %d %ld %ld\n", order.c_str(), s, failed, got, total.load(), ended.load());
}
