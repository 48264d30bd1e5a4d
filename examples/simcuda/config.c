/* Reads the SIMCUDA_… environment variables. An invalid value ends the process, so that a test
 * with a misspelt setting fails. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *text(const char *name)
{
	const char *value = getenv(name);
	return value && *value ? value : NULL;
}

static void refuse(const char *name, const char *value)
{
	fprintf(stderr, "simcuda: error: invalid value %s=%s\n", name, value);
	_exit(1);
}

static double number(const char *name, double fallback)
{
	const char *value = text(name);
	if (!value)
		return fallback;
	char *end;
	double n = strtod(value, &end);
	if (*end || n < 0)
		refuse(name, value);
	return n;
}

static uint64_t bytes(const char *name, uint64_t fallback)
{
	const char *value = text(name);
	if (!value)
		return fallback;
	char *end;
	double n = strtod(value, &end);
	int shift = 0;
	switch (*end) {
	case 'K': case 'k': shift = 10; end++; break;
	case 'M': case 'm': shift = 20; end++; break;
	case 'G': case 'g': shift = 30; end++; break;
	case 'T': case 't': shift = 40; end++; break;
	}
	if (*end == 'i' && end[1] == 'B')
		end += 2;
	if (*end || n <= 0)
		refuse(name, value);
	return (uint64_t)(n * (double)(1ull << shift));
}

/* Parses one entry DEVICE/PROFILE of SIMCUDA_MIG, for example 0/1g.10gb. An entry without a
 * profile enables MIG on the device and creates no MIG device. */
static bool read_mig(struct config *c, char *entry)
{
	char *rest;
	long device = strtol(entry, &rest, 10);
	if (rest == entry || *rest != '/' || device < 0 || device >= MAX_DEVICES)
		return false;
	c->mig[device] = true;
	if (!*++rest)
		return true;
	struct mig_device *part = &c->parts[device][c->migs[device]];
	int slices, gigabytes, end = 0;
	if (c->migs[device] == MAX_MIG || strlen(rest) >= sizeof(part->profile) ||
	    sscanf(rest, "%dg.%dgb%n", &slices, &gigabytes, &end) != 2 || !end || rest[end] || gigabytes <= 0)
		return false;
	strcpy(part->profile, rest);
	part->memory = (uint64_t)gigabytes << 30;
	c->migs[device]++;
	return true;
}

static void read_migs(struct config *c)
{
	const char *value = text("SIMCUDA_MIG");
	char list[1024], *rest;
	if (!value)
		return;
	if (strlen(value) >= sizeof(list))
		refuse("SIMCUDA_MIG", value);
	strcpy(list, value);
	for (char *entry = strtok_r(list, ",", &rest); entry; entry = strtok_r(NULL, ",", &rest))
		if (!read_mig(c, entry))
			refuse("SIMCUDA_MIG", value);
}

void config_read(struct config *c)
{
	c->devices_given = text("SIMCUDA_DEVICES") != NULL;
	c->devices = (int)number("SIMCUDA_DEVICES", 1);
	if (c->devices > MAX_DEVICES)
		refuse("SIMCUDA_DEVICES", text("SIMCUDA_DEVICES"));
	c->memory_given = text("SIMCUDA_MEMORY") != NULL;
	c->memory = bytes("SIMCUDA_MEMORY", 8ull << 30);
	c->kernel_ns = (uint64_t)(number("SIMCUDA_KERNEL_US", 5) * 1000);
	c->bytes_per_ns = number("SIMCUDA_GBPS", 20);
	if (c->bytes_per_ns == 0)
		refuse("SIMCUDA_GBPS", text("SIMCUDA_GBPS"));
	const char *time = text("SIMCUDA_TIME");
	if (time && strcmp(time, "off") && strcmp(time, "on"))
		refuse("SIMCUDA_TIME", time);
	c->instant = time && !strcmp(time, "off");
	c->ledger = text("SIMCUDA_LEDGER");
	c->ledger_sync = number("SIMCUDA_LEDGER_SYNC", 0) != 0;
	c->fail = text("SIMCUDA_FAIL");
	c->state = text("SIMCUDA_STATE");
	read_migs(c);
}
