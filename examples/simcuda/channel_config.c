/* Reads SIMCUDA_CHANNELS: "on", or settings as in "kernel_us=2-50,tear_ns=1000,slots=off". */
#include "channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct channel_config channel_config = {
	.kernel_min_us = 2, .kernel_max_us = 200, .jitter = 0.02, .tear_ns = 100, .connections = 8, .slots = true, .decoys = true,
};

static bool read_switch(const char *value, bool *out)
{
	*out = !strcmp(value, "on");
	return *out || !strcmp(value, "off");
}

static bool read_reuse(const char *value, enum reuse *out)
{
	static const char *const names[] = {[REUSE_KEEP] = "keep", [REUSE_RESET] = "reset"};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strcmp(value, names[i]))
			continue;
		*out = (enum reuse)i;
		return true;
	}
	return false;
}

static bool read_number(const char *value, double most, double *out)
{
	char *end;
	*out = strtod(value, &end);
	return *value && !*end && *out >= 0 && *out <= most;
}

static bool read_range(const char *value, double *from, double *to)
{
	int end = 0;
	return sscanf(value, "%lf-%lf%n", from, to, &end) == 2 && !value[end] && *from > 0 && *to >= *from;
}

static bool read_setting(const char *name, const char *value)
{
	struct channel_config *c = &channel_config;
	double number;
	if (!strcmp(name, "slots"))
		return read_switch(value, &c->slots);
	if (!strcmp(name, "decoys"))
		return read_switch(value, &c->decoys);
	if (!strcmp(name, "reuse"))
		return read_reuse(value, &c->reuse);
	if (!strcmp(name, "kernel_us"))
		return read_range(value, &c->kernel_min_us, &c->kernel_max_us);
	if (!strcmp(name, "jitter"))
		return read_number(value, 0.9, &c->jitter);
	if (!strcmp(name, "extra"))
		return read_number(value, 1, &c->extra);
	bool ok = read_number(value, 1e6, &number);
	if (!ok || strcmp(name, "tear_ns"))
		return false;
	c->tear_ns = (uint64_t)number;
	return true;
}

static void refuse(const char *name, const char *value)
{
	fprintf(stderr, "simcuda: error: invalid value %s=%s\n", name, value);
	_exit(1);
}

/* The number of connections is a variable of the real driver. */
static void read_connections(void)
{
	const char *value = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	double number;
	if (!value || !*value)
		return;
	if (!read_number(value, CONNECTIONS_MAX, &number) || number < 1)
		refuse("CUDA_DEVICE_MAX_CONNECTIONS", value);
	channel_config.connections = (int)number;
}

bool channel_config_read(void)
{
	const char *value = getenv("SIMCUDA_CHANNELS");
	char list[512], *rest;
	if (!value || !*value || !strcmp(value, "off"))
		return false;
	if (strlen(value) >= sizeof(list))
		refuse("SIMCUDA_CHANNELS", value);
	read_connections();
	if (!strcmp(value, "on"))
		return true;
	strcpy(list, value);
	for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		char *equals = strchr(name, '=');
		if (!equals)
			refuse("SIMCUDA_CHANNELS", value);
		*equals = 0;
		if (!read_setting(name, equals + 1))
			refuse("SIMCUDA_CHANNELS", value);
	}
	return true;
}
