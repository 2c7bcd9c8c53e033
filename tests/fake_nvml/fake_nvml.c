/* A pretend libnvidia-ml.so.1: answers the questions oelm_core asks, from a scenario file that tests write.
 *
 * FAKE_NVML names the file. It is read again at every nvmlInit and nvmlDeviceGetCount, so a test can change
 * the machine under a running program. One line each, words key=value, no spaces in values:
 *
 *   driver init=18                         nvmlInit answers error 18
 *   card uuid=GPU-a name=Old used=1 ...    a card; uuid name util used total temp power limit throttle mig processes
 *   process pid=4711 memory=18200000000    on the card (or instance) above
 *   instance uuid=MIG-a used=1 total=2     a MIG instance on the card above
 *
 * A value of !15 means: this question is answered with error 15. handle=!15: the card has no handle at all.
 * hang=3 on the driver line: every count takes three seconds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX = 32, OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

typedef struct Device Device;
struct Device {
    char line[512];
    unsigned pids[MAX];
    unsigned long long memory[MAX];
    unsigned processes;
    Device *instances[MAX];
    unsigned count;
};

static Device cards[MAX];
static unsigned card_count;
static char driver[512];

/* The value of a key in a line, "" when absent. */
static const char *value(const char *line, const char *key) {
    static char found[8][256];
    static int turn;
    char wanted[64];
    char *out = found[turn = (turn + 1) % 8];
    snprintf(wanted, sizeof wanted, " %s=", key);
    const char *at = strstr(line, wanted);
    out[0] = 0;
    if (at) sscanf(at + strlen(wanted), "%255[^ \n]", out);
    return out;
}

static int refused(const char *text) { return text[0] == '!' ? atoi(text + 1) : OK; }

static int number(Device *device, const char *key, unsigned long long *out) {
    const char *text = value(device->line, key);
    if (refused(text)) return refused(text);
    if (!text[0]) return NOT_SUPPORTED;
    *out = strtoull(text, NULL, 10);
    return OK;
}

static int text(Device *device, const char *key, char *out, unsigned size) {
    const char *found = value(device->line, key);
    if (refused(found)) return refused(found);
    snprintf(out, size, "%s", found);
    return OK;
}

static void load(void) {
    char line[512];
    Device *last = NULL;
    FILE *file = fopen(getenv("FAKE_NVML") ? getenv("FAKE_NVML") : "", "r");
    card_count = 0;
    driver[0] = 0;
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        if (!strncmp(line, "driver", 6)) strcpy(driver, line);
        else if (!strncmp(line, "card", 4) && card_count < MAX) {
            last = &cards[card_count++];
            memset(last, 0, sizeof *last);
            strcpy(last->line, line);
        } else if (!strncmp(line, "instance", 8) && card_count) {
            Device *card = &cards[card_count - 1];
            last = card->instances[card->count++] = calloc(1, sizeof(Device));
            strcpy(last->line, line);
        } else if (!strncmp(line, "process", 7) && last) {
            last->pids[last->processes] = (unsigned)strtoul(value(line, "pid"), NULL, 10);
            const char *memory = value(line, "memory");
            last->memory[last->processes++] = memory[0] ? strtoull(memory, NULL, 10) : ~0ULL;
        }
    }
    fclose(file);
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    load();
    return refused(value(driver, "init")) ? refused(value(driver, "init")) : atoi(value(driver, "init"));
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    snprintf(out, size, "%s", value(driver, "version")[0] ? value(driver, "version") : "535.183.01");
    return OK;
}

const char *nvmlErrorString(int code) {
    switch (code) {
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    load();
    if (value(driver, "hang")[0]) usleep((useconds_t)(atof(value(driver, "hang")) * 1e6));
    *count = card_count;
    return refused(value(driver, "count"));
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **handle) {
    if (index >= card_count) return INVALID;
    *handle = &cards[index];
    return refused(value(cards[index].line, "handle"));
}

int nvmlDeviceGetUUID(Device *device, char *out, unsigned size) { return text(device, "uuid", out, size); }
int nvmlDeviceGetName(Device *device, char *out, unsigned size) { return text(device, "name", out, size); }

int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    unsigned long long both = 0; /* 86 is 8.6 */
    int code = number(device, "capability", &both);
    *major = (int)(both / 10), *minor = (int)(both % 10);
    return code;
}

int nvmlDeviceGetMemoryInfo(Device *device, unsigned long long out[3]) {
    unsigned long long total = 0, used = 0;
    int code = number(device, "total", &total);
    if (!code) code = number(device, "used", &used);
    out[0] = total, out[1] = total - used, out[2] = used;
    return code;
}

int nvmlDeviceGetUtilizationRates(Device *device, unsigned out[2]) {
    unsigned long long rate = 0;
    int code = number(device, "util", &rate);
    out[0] = (unsigned)rate, out[1] = 0;
    return code;
}

int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *out) {
    unsigned long long degrees = 0;
    (void)sensor;
    int code = number(device, "temp", &degrees);
    *out = (unsigned)degrees;
    return code;
}

int nvmlDeviceGetPowerUsage(Device *device, unsigned *out) {
    unsigned long long milliwatts = 0;
    int code = number(device, "power", &milliwatts);
    *out = (unsigned)milliwatts;
    return code;
}

int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *out) {
    unsigned long long milliwatts = 0;
    int code = number(device, "limit", &milliwatts);
    *out = (unsigned)milliwatts;
    return code;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *out) {
    return number(device, "throttle", out);
}

typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } Process;

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *out) {
    unsigned room = *count;
    if (refused(value(device->line, "processes"))) return refused(value(device->line, "processes"));
    *count = device->processes;
    if (!device->processes) return OK;
    if (!out || room < device->processes) return TOO_SMALL;
    for (unsigned i = 0; i < device->processes; i++) out[i] = (Process){device->pids[i], device->memory[i], 0, 0};
    return OK;
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    *current = *pending = device->count > 0;
    return device->count ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    *count = device->count ? 7 : 0;
    return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **handle) {
    if (index >= device->count) return NOT_FOUND;
    *handle = device->instances[index];
    return OK;
}
