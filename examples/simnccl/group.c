/*
 * Groups. Operations between ncclGroupStart and ncclGroupEnd are only noted. The outermost
 * ncclGroupEnd finishes the inits, then launches one kernel for each communicator, in the order of
 * the communicators' first operations. Without a group, an operation launches its kernel itself.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static __thread struct group {
	int depth;
	uint64_t number; /* outermost groups so far */
	struct task *tasks;
	int tasks_len, tasks_room;
	struct communicator **inits;
	int inits_len, inits_room;
	ncclResult_t result; /* first failure inside */
} group;

ncclResult_t group_start(void)
{
	if (!group.depth++) {
		group.number++;
		group.result = ncclSuccess;
	}
	return ncclSuccess;
}

uint64_t group_number(void)
{
	return group.depth ? group.number : 0;
}

static void *grow(void *list, int len, int *room, size_t each)
{
	if (len < *room)
		return list;
	*room = *room ? *room * 2 : 16;
	return realloc(list, (size_t)*room * each);
}

ncclResult_t group_add_task(const struct task *task)
{
	if (!group.depth)
		return plan_launch(task->of, task, 1);
	group.tasks = grow(group.tasks, group.tasks_len, &group.tasks_room, sizeof(*task));
	if (!group.tasks)
		return ncclSystemError;
	group.tasks[group.tasks_len++] = *task;
	return ncclSuccess;
}

ncclResult_t group_add_init(struct communicator *c)
{
	if (!group.depth)
		return communicator_ready(c);
	group.inits = grow(group.inits, group.inits_len, &group.inits_room, sizeof(*group.inits));
	if (!group.inits)
		return ncclSystemError;
	group.inits[group.inits_len++] = c;
	return ncclSuccess;
}

/* Moves the tasks of the first communicator to the front, in their order, and returns their number. */
static int gather_first(struct task *tasks, int n)
{
	int len = 1;
	for (int i = 1; i < n; i++) {
		if (tasks[i].of != tasks[0].of)
			continue;
		struct task t = tasks[i];
		memmove(&tasks[len + 1], &tasks[len], (size_t)(i - len) * sizeof(t));
		tasks[len++] = t;
	}
	return len;
}

ncclResult_t group_end(uint64_t *number, uint64_t *operations)
{
	*number = group_number();
	if (!group.depth)
		return ncclInvalidUsage;
	*operations = (uint64_t)group.tasks_len;
	if (--group.depth)
		return ncclSuccess;
	ncclResult_t result = group.result;
	for (int i = 0; i < group.inits_len && !result; i++)
		result = communicator_ready(group.inits[i]);
	for (int i = 0, n; i < group.tasks_len && !result; i += n) {
		n = gather_first(&group.tasks[i], group.tasks_len - i);
		result = plan_launch(group.tasks[i].of, &group.tasks[i], n);
	}
	group.tasks_len = group.inits_len = 0;
	return result;
}

bool group_is_outermost(void)
{
	return group.depth == 1;
}

ncclResult_t group_drop(uint64_t *number, uint64_t *operations)
{
	*number = group_number();
	*operations = (uint64_t)group.tasks_len;
	if (!group.depth)
		return ncclInvalidUsage;
	if (!--group.depth)
		group.tasks_len = group.inits_len = 0;
	return ncclSuccess;
}
