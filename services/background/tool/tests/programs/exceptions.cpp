// Exceptions through many frames with destructors, virtual functions, containers, streams.
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

static int destroyed;
struct Guard {
    int n;
    explicit Guard(int n) : n(n) {}
    ~Guard() { destroyed += n; }
};
struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
};
struct Square : Shape {
    double side;
    explicit Square(double s) : side(s) {}
    double area() const override {
        if (side > 90) throw std::range_error("side " + std::to_string(int(side)));
        return side * side;
    }
};
struct Disc : Shape {
    double radius;
    explicit Disc(double r) : radius(r) {}
    double area() const override { return 3.14159 * radius * radius; }
};

static int deep(const std::vector<int> &v, int depth) {
    Guard guard(depth);
    if (depth == 0) return v.at(v[3]);
    try {
        return deep(v, depth - 1) + v[depth % v.size()];
    } catch (const std::out_of_range &) {
        if (depth % 7 == 0) return depth;
        throw;
    }
}

int main() {
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < 100; i++) {
        if (i % 3) shapes.push_back(std::make_unique<Square>(i));
        else shapes.push_back(std::make_unique<Disc>(i));
    }
    double sum = 0;
    std::map<std::string, int> failures;
    for (int round = 0; round < 50; round++)
        for (auto &s : shapes) {
            try {
                sum += s->area();
            } catch (const std::exception &e) {
                failures[e.what()]++;
            }
        }
    int total = 0;
    for (int i = 0; i < 200; i++) {
        std::vector<int> v(20 + i % 20, i);
        try {
            total += deep(v, i % 23);
        } catch (...) {
            total -= i;
        }
    }
    std::ostringstream text;
    for (auto &f : failures) text << f.first << '=' << f.second << ' ';
    std::string s = text.str();
    std::sort(s.begin(), s.end());
    std::cout << sum << ' ' << total << ' ' << destroyed << ' ' << s << std::endl;
}
