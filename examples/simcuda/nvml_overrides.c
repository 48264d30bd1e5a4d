/* Overrides of NVML values, read from the file that SIMCUDA_NVML names. */
#include "nvml_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *word; nvmlReturn_t result; } errors[] = {
	{"not_supported", NVML_ERROR_NOT_SUPPORTED}, {"lost", NVML_ERROR_GPU_IS_LOST}, {"unknown", NVML_ERROR_UNKNOWN},
};

static nvmlReturn_t parse(char *text, double *values, int n)
{
	char *rest;
	char *word = strtok_r(text, " \n", &rest);
	for (size_t i = 0; word && i < sizeof(errors) / sizeof(errors[0]); i++)
		if (!strcmp(word, errors[i].word))
			return errors[i].result;
	for (int i = 0; i < n && word; i++, word = strtok_r(NULL, " \n", &rest))
		values[i] = strtod(word, NULL);
	return NVML_SUCCESS;
}

/* Returns the text after the key if the line is for this device and key, else NULL. */
static char *value_text(char *line, int device, const char *key)
{
	char *slash = strchr(line, '/');
	if (slash && strtol(line, NULL, 10) != device)
		return NULL;
	char *name = slash ? slash + 1 : line;
	size_t length = strlen(key);
	return !strncmp(name, key, length) && name[length] == ' ' ? name + length : NULL;
}

nvmlReturn_t override_values(int device, const char *key, double *values, int n)
{
	const char *path = getenv("SIMCUDA_NVML");
	FILE *file = path && *path ? fopen(path, "re") : NULL;
	if (!file)
		return NVML_SUCCESS;
	char line[256];
	nvmlReturn_t result = NVML_SUCCESS;
	while (fgets(line, sizeof(line), file)) {
		char *text = value_text(line, device, key);
		if (text)
			result = parse(text, values, n);
	}
	fclose(file);
	return result;
}

nvmlReturn_t override_values_of_argument(int device, const char *function, long argument, double *values, int n)
{
	char key[128];
	snprintf(key, sizeof(key), "%s:%ld", function, argument);
	return override_values(device, key, values, n);
}
