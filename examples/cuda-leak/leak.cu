// An inference server in CUDA C++ that leaks GPU memory in one of three functions.
//
//     nvcc -g -o leak leak.cu && ./leak [SECONDS]
//
// Weights::load keeps its memory on purpose. Batch frees its memory after every request. Features::of
// leaks one block for every new user. At its end the program prints the leaked bytes.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#define CHECK(call)                                                                             \
	do {                                                                                    \
		cudaError_t error = (call);                                                     \
		if (error != cudaSuccess) {                                                     \
			std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));     \
			std::exit(1);                                                           \
		}                                                                               \
	} while (0)

constexpr std::size_t mebibyte = 1 << 20;

template <typename T>
__global__ void scale(T *values, T factor, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		values[i] *= factor;
}

class Weights {
public:
	void load(int layers)
	{
		for (int i = 0; i < layers; i++) {
			void *layer;
			CHECK(cudaMalloc(&layer, 16 * mebibyte));
			layers_.push_back(layer);
		}
	}
	~Weights()
	{
		for (void *layer : layers_)
			cudaFree(layer);
	}

private:
	std::vector<void *> layers_;
};

class Batch {
public:
	explicit Batch(int n) : n_(n) { CHECK(cudaMalloc(&values_, n * sizeof(float))); }
	~Batch() { cudaFree(values_); }
	void run()
	{
		scale<float><<<(n_ + 255) / 256, 256>>>(values_, 0.5F, n_);
		CHECK(cudaDeviceSynchronize());
	}

private:
	float *values_;
	int n_;
};

class Features {
public:
	// of returns the features of a user, from a cache that is never cleared: the leak.
	void *of(int user)
	{
		auto found = cache_.find(user);
		if (found != cache_.end())
			return found->second;
		void *features;
		CHECK(cudaMalloc(&features, mebibyte / 4));
		lost += mebibyte / 4;
		return cache_[user] = features;
	}
	std::size_t lost = 0;

private:
	std::map<int, void *> cache_;
};

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? std::atof(argv[1]) : 20;
	Weights weights;
	weights.load(12);
	auto features = std::make_unique<Features>();
	auto begin = std::chrono::steady_clock::now();
	auto running = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds; };
	for (int request = 0; running(); request++) {
		Batch batch(100000 + request % 7 * 10000);
		features->of(request / 4); // four requests of each user
		batch.run();
		std::this_thread::sleep_for(std::chrono::milliseconds(5));
	}
	std::printf("lost %zu bytes\n", features->lost);
}
