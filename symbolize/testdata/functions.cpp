// Mangled names: overloads, templates, constructors (C1 and C2 at one address), lambdas.
#include <string>
#include <vector>

namespace outer {
struct Widget {
  std::vector<int> values;
  __attribute__((noinline)) explicit Widget(int n) : values(n) {}
  __attribute__((noinline)) virtual int total(int scale) const {
    int sum = 0;
    for (int v : values) sum += v * scale;
    return sum;
  }
  virtual ~Widget() {}
};
template <typename T> __attribute__((noinline)) T twice(T x) { return x + x; }
}  // namespace outer

extern "C" int use(int n) {
  outer::Widget w(n);
  auto lambda = [&](int k) { return w.total(k); };
  return lambda(outer::twice(n)) + (int)outer::twice(std::string("ab")).size();
}
#ifndef NO_MAIN
int main(int argc, char **) { return use(argc); }
#endif
