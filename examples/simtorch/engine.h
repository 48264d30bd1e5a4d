/* The part of PyTorch's autograd engine that recorders use. Names, parameters and threads are those of PyTorch 2.11. */
#ifndef SIMTORCH_ENGINE_H
#define SIMTORCH_ENGINE_H

#include "c10.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace at {

/* Memory of the allocator, which the caller of backward() owns. */
struct Tensor {
	void *ptr = nullptr;
};

} // namespace at

namespace torch::autograd {

using variable_list = std::vector<at::Tensor>;

/* A node of the graph. A thread of the engine calls apply(). */
struct Node {
	virtual ~Node() = default;
	virtual variable_list apply(variable_list &&inputs) = 0;
};

struct Edge {
	std::shared_ptr<Node> function;
	uint32_t input_nr;
};
using edge_list = std::vector<Edge>;

/* The roots of one call of execute, and what they gave. */
struct GraphTask {
	const edge_list *roots;
	bool needs_caller; /* false: the thread runs it although no thread is inside of execute */
	variable_list gradients;
	std::exception_ptr error;
	bool done = false;
};

class EXPORT Engine {
	std::mutex mutex;
	std::condition_variable changed;
	std::deque<GraphTask *> queue;
	int inside = 0;   /* threads in execute */
	int together = 1; /* the thread runs nothing until so many threads are in execute */
	bool is_started = false, is_busy = false;

public:
	/* Runs the roots on the thread pt_autograd_0, which it waits for. Inside of a node it runs them itself. */
	virtual variable_list execute(const edge_list &roots, const variable_list &inputs, bool keep_graph, bool create_graph,
				      bool accumulate_grad, const edge_list &outputs = {});
	virtual ~Engine() = default;

	variable_list run_alone(const edge_list &roots);
	void set_together(int threads);

private:
	void start();
	void thread_main();
	variable_list wait_for(GraphTask &task, std::unique_lock<std::mutex> &lock);
};

} // namespace torch::autograd

#endif
