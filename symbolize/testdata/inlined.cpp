// See inlined.c.
#include <cstdio>

#define INLINE inline __attribute__((always_inline))

__attribute__((noinline)) void here(const char *name)
{
	printf("%s %p\n", name, __builtin_return_address(0));
	__asm__ volatile("" ::: "memory");
}

namespace shapes {

struct Widget {
	int size;
	INLINE int area(int scale) const
	{
		here("method"); // method 0
		return size * scale;
	}
};

template <typename T> INLINE T twice(const Widget &w, T n)
{
	return w.area(n) * 2; // method 1
}

template <typename T> __attribute__((noinline)) T generic(T n)
{
	Widget w{static_cast<int>(n)};
	auto scaled = [&](T by) {
		here("lambda"); // lambda 0
		return by * n;
	};
	T sum = twice(w, n); // method 2
	sum += scaled(n); // lambda 1
	__asm__ volatile("" ::: "memory");
	return sum;
}

} // namespace shapes

int main(int argc, char **)
{
	return shapes::generic<long>(argc + 2) == 0;
}
