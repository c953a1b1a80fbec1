/* A stand-in for libnvidia-ml.so.1 that plays the machine of a file. See README.md. For tests only.
 *
 * The functions and structures are those of nvml.h as far as Sconce calls them. What a machine
 * file does not say of a card, the card does not support. */
#include "machine.h"

enum {
    SUCCESS = 0,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
};

#define API __attribute__((visibility("default"))) int

typedef struct {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_info;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2;

typedef struct {
    unsigned long long total, free, used;
} memory_v1;

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} process;

typedef struct {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
} fabric_info;

static struct machine machine;

/* A card's answer to every question once it is lost. */
#define ASK(card, key)                                  \
    const char *value;                                  \
    if (!(card)) return INVALID_ARGUMENT;               \
    if ((card)->lost) return (card)->lost;              \
    value = find((card)->lines, (card)->count, (key));  \
    if (!value) return NOT_SUPPORTED

static int put_text(const char *value, char *text, unsigned length)
{
    if (strlen(value) + 1 > length) return INSUFFICIENT_SIZE;
    strcpy(text, value);
    return SUCCESS;
}

static int put_number(const char *value, unsigned *number)
{
    *number = strtoul(value, 0, 10);
    return SUCCESS;
}

static int put_pci(const char *value, pci_info *info)
{
    memset(info, 0, sizeof *info);
    sscanf(value, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    return put_text(value, info->bus_id, sizeof info->bus_id);
}

API nvmlInit_v2(void)
{
    const char *result;
    read_machine(&machine);
    result = find(machine.lines, machine.count, "init");
    return result ? atoi(result) : SUCCESS;
}

API nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return nvmlInit_v2();
}

API nvmlShutdown(void) { return SUCCESS; }

__attribute__((visibility("default"))) const char *nvmlErrorString(int result)
{
    return result ? "stand-in" : "Success";
}

API nvmlSystemGetDriverVersion(char *text, unsigned length)
{
    const char *value = find(machine.lines, machine.count, "driver");
    return value ? put_text(value, text, length) : NOT_SUPPORTED;
}

API nvmlSystemGetNVMLVersion(char *text, unsigned length)
{
    const char *value = find(machine.lines, machine.count, "nvml");
    return value ? put_text(value, text, length) : NOT_SUPPORTED;
}

API nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    const char *value = find(machine.lines, machine.count, "cuda");
    if (!value) return NOT_SUPPORTED;
    *version = atoi(value);
    return SUCCESS;
}

API nvmlDeviceGetCount_v2(unsigned *count)
{
    /* Whoever asks for all cards anew finds the machine as its file is now. */
    read_machine(&machine);
    *count = machine.cards_count;
    return SUCCESS;
}

API nvmlDeviceGetHandleByIndex_v2(unsigned index, struct card **card)
{
    const char *refused;
    if (index >= (unsigned)machine.cards_count) return INVALID_ARGUMENT;
    *card = &machine.cards[index];
    refused = find((*card)->lines, (*card)->count, "handle");
    return refused ? atoi(refused) : SUCCESS;
}

API nvmlDeviceGetName(struct card *card, char *text, unsigned length)
{
    /* Kept by the driver, so that a lost card has one. */
    const char *value = card ? find(card->lines, card->count, "name") : 0;
    return value ? put_text(value, text, length) : NOT_SUPPORTED;
}

API nvmlDeviceGetUUID(struct card *card, char *text, unsigned length)
{
    ASK(card, "uuid");
    return put_text(value, text, length);
}

API nvmlDeviceGetPciInfo_v3(struct card *card, pci_info *info)
{
    const char *value = card ? find(card->lines, card->count, "bus") : 0;
    return value ? put_pci(value, info) : NOT_SUPPORTED;
}

API nvmlDeviceGetMinorNumber(struct card *card, unsigned *minor)
{
    ASK(card, "minor");
    return put_number(value, minor);
}

API nvmlDeviceGetBrand(struct card *card, unsigned *brand)
{
    ASK(card, "brand");
    return put_number(value, brand);
}

API nvmlDeviceGetCudaComputeCapability(struct card *card, int *major, int *minor)
{
    ASK(card, "capability");
    return sscanf(value, "%d.%d", major, minor) == 2 ? SUCCESS : NOT_SUPPORTED;
}

API nvmlDeviceGetMemoryInfo_v2(struct card *card, memory_v2 *info)
{
    unsigned long long total = 0, used = 0;
    ASK(card, "memory");
    if (find(machine.lines, machine.count, "old")) return NOT_SUPPORTED;
    sscanf(value, "%llu %llu", &total, &used);
    info->total = total;
    info->used = used;
    info->free = total - used;
    info->reserved = 0;
    return SUCCESS;
}

API nvmlDeviceGetMemoryInfo(struct card *card, memory_v1 *info)
{
    ASK(card, "memory");
    sscanf(value, "%llu %llu", &info->total, &info->used);
    info->free = info->total - info->used;
    return SUCCESS;
}

API nvmlDeviceGetComputeRunningProcesses_v3(struct card *card, unsigned *count, process *list)
{
    unsigned room = *count, found = 0;
    int line;
    ASK(card, "memory");
    (void)value;
    for (line = 0; line < card->count; line++) {
        process one = {.gpu_instance = ~0u, .compute_instance = ~0u};
        if (sscanf(card->lines[line], "process %u %llu", &one.pid, &one.used) != 2) continue;
        if (list && found < room) list[found] = one;
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

API nvmlDeviceGetMigMode(struct card *card, unsigned *current, unsigned *pending)
{
    ASK(card, "mig");
    *pending = atoi(value);
    return put_number(value, current);
}

API nvmlDeviceGetMaxMigDeviceCount(struct card *card, unsigned *count)
{
    ASK(card, "mig");
    (void)value;
    *count = 7;
    return SUCCESS;
}

/* Numbers of parts have holes: a line `instance -` is one. */
API nvmlDeviceGetMigDeviceHandleByIndex(struct card *card, unsigned index, struct card **part)
{
    static struct card parts[MOST_CARDS * 8];
    static int used;
    const char *uuid;
    ASK(card, "mig");
    (void)value;
    uuid = find_nth(card->lines, card->count, "instance", index);
    if (!uuid || !strcmp(uuid, "-")) return NOT_FOUND;
    *part = &parts[used++ % (MOST_CARDS * 8)];
    memset(*part, 0, sizeof **part);
    snprintf((*part)->lines[(*part)->count++], LINE, "uuid %.*s", (int)strcspn(uuid, " "), uuid);
    if (uuid[strcspn(uuid, " ")])
        snprintf((*part)->lines[(*part)->count++], LINE, "memory%s", uuid + strcspn(uuid, " "));
    /* Where it belongs: a line `instance-ids` for each line `instance`. */
    uuid = find_nth(card->lines, card->count, "instance-ids", index);
    if (uuid) snprintf((*part)->lines[(*part)->count++], LINE, "ids %s", uuid);
    return SUCCESS;
}

API nvmlDeviceGetGpuInstanceId(struct card *part, unsigned *id)
{
    ASK(part, "ids");
    return put_number(value, id);
}

API nvmlDeviceGetComputeInstanceId(struct card *part, unsigned *id)
{
    ASK(part, "ids");
    return put_number(value + strcspn(value, " "), id);
}

API nvmlDeviceGetEccMode(struct card *card, unsigned *current, unsigned *pending)
{
    ASK(card, "ecc");
    *pending = atoi(value);
    return put_number(value, current);
}

API nvmlDeviceGetTotalEccErrors(struct card *card, unsigned type, unsigned counter,
                                unsigned long long *count)
{
    ASK(card, "ecc-uncorrected");
    /* Uncorrected, since the driver was loaded. */
    if (type != 1 || counter != 0) return NOT_SUPPORTED;
    *count = strtoull(value, 0, 10);
    return SUCCESS;
}

API nvmlDeviceGetRemappedRows(struct card *card, unsigned *correctable, unsigned *uncorrectable,
                              unsigned *pending, unsigned *failed)
{
    ASK(card, "rows");
    *correctable = 0;
    return sscanf(value, "%u %u %u", uncorrectable, pending, failed) == 3 ? SUCCESS : NOT_SUPPORTED;
}

API nvmlDeviceGetEnforcedPowerLimit(struct card *card, unsigned *limit)
{
    ASK(card, "power-limit");
    return put_number(value, limit);
}

API nvmlDeviceGetPowerManagementLimit(struct card *card, unsigned *limit)
{
    ASK(card, "power-limit");
    return put_number(value, limit);
}

API nvmlDeviceGetPowerManagementDefaultLimit(struct card *card, unsigned *limit)
{
    ASK(card, "power-limit-default");
    return put_number(value, limit);
}

API nvmlDeviceGetPowerUsage(struct card *card, unsigned *power)
{
    ASK(card, "power");
    return put_number(value, power);
}

API nvmlDeviceGetUtilizationRates(struct card *card, unsigned *rates)
{
    ASK(card, "utilisation");
    rates[1] = 0;
    return sscanf(value, "%u %u", &rates[0], &rates[1]) > 0 ? SUCCESS : NOT_SUPPORTED;
}

API nvmlDeviceGetTemperature(struct card *card, unsigned sensor, unsigned *degrees)
{
    ASK(card, "temperature");
    (void)sensor;
    return put_number(value, degrees);
}

API nvmlDeviceGetCurrentClocksThrottleReasons(struct card *card, unsigned long long *reasons)
{
    ASK(card, "throttle");
    *reasons = strtoull(value, 0, 0);
    return SUCCESS;
}

API nvmlDeviceGetPersistenceMode(struct card *card, unsigned *mode)
{
    ASK(card, "persistence");
    return put_number(value, mode);
}

API nvmlDeviceGetComputeMode(struct card *card, unsigned *mode)
{
    ASK(card, "compute-mode");
    return put_number(value, mode);
}

/* `link 00000000:07:00.0` is up and leads there, `link down` is not. */
API nvmlDeviceGetNvLinkState(struct card *card, unsigned link, unsigned *active)
{
    const char *there;
    ASK(card, "link");
    (void)value;
    there = find_nth(card->lines, card->count, "link", link);
    if (!there) return INVALID_ARGUMENT;
    *active = strcmp(there, "down") != 0;
    return SUCCESS;
}

API nvmlDeviceGetNvLinkRemotePciInfo_v2(struct card *card, unsigned link, pci_info *info)
{
    const char *there;
    ASK(card, "link");
    (void)value;
    there = find_nth(card->lines, card->count, "link", link);
    return there ? put_pci(there, info) : INVALID_ARGUMENT;
}

API nvmlDeviceGetGpuFabricInfo(struct card *card, fabric_info *info)
{
    unsigned state = 0;
    ASK(card, "fabric");
    memset(info, 0, sizeof *info);
    sscanf(value, "%u %d", &state, &info->status);
    info->state = state;
    return SUCCESS;
}

API nvmlDeviceGetTotalEnergyConsumption(struct card *card, unsigned long long *energy)
{
    ASK(card, "energy");
    *energy = strtoull(value, 0, 10);
    return SUCCESS;
}

/* 1 is the clock of the multiprocessors, 2 of the memory. */
API nvmlDeviceGetClockInfo(struct card *card, unsigned which, unsigned *mhz)
{
    unsigned sm = 0, memory = 0;
    ASK(card, "clocks");
    sscanf(value, "%u %u", &sm, &memory);
    *mhz = which == 2 ? memory : sm;
    return SUCCESS;
}

/* 0 is from the card, 1 is to it. */
API nvmlDeviceGetPcieThroughput(struct card *card, unsigned counter, unsigned *kilobytes)
{
    unsigned received = 0, sent = 0;
    ASK(card, "pcie-throughput");
    sscanf(value, "%u %u", &received, &sent);
    *kilobytes = counter == 0 ? sent : received;
    return SUCCESS;
}

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type;
    int result;
    unsigned long long value;
} field_value;

/* Counters of links grow by the same amount from question to question. */
API nvmlDeviceGetFieldValues(struct card *card, int count, field_value *values)
{
    static unsigned long long asked;
    unsigned long long received = 0, sent = 0;
    const char *line;
    int at;
    if (!card) return INVALID_ARGUMENT;
    if (card->lost) return card->lost;
    asked++;
    for (at = 0; at < count; at++) {
        unsigned field = values[at].field;
        const char *key = field == 197 || field == 198 ? "pcie-step" : "nvlink-step";
        int known = field == 197 || field == 198 ||
                    ((field == 138 || field == 139) && values[at].scope == ~0u);
        line = known ? find(card->lines, card->count, key) : 0;
        values[at].result = line ? SUCCESS : NOT_SUPPORTED;
        if (!line) continue;
        sscanf(line, "%llu %llu", &received, &sent);
        values[at].type = 3;
        values[at].value = asked * (field == 198 || field == 139 ? received : sent);
    }
    return SUCCESS;
}

/* Events: every `xid` line of a card is told once. A set is the card that was registered in it. */
struct event_set {
    struct card *card;
    unsigned told;
};

typedef struct {
    struct card *card;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} event_data;

API nvmlEventSetCreate(struct event_set **set)
{
    *set = calloc(1, sizeof **set);
    return SUCCESS;
}

API nvmlEventSetFree(struct event_set *set)
{
    free(set);
    return SUCCESS;
}

API nvmlDeviceRegisterEvents(struct card *card, unsigned long long types, struct event_set *set)
{
    ASK(card, "xid");
    (void)value;
    if (types != 8) return INVALID_ARGUMENT;
    set->card = card;
    return SUCCESS;
}

API nvmlEventSetWait_v2(struct event_set *set, event_data *data, unsigned milliseconds)
{
    const char *value;
    /* A reading must not wait. */
    if (milliseconds) return INVALID_ARGUMENT;
    value = find_nth(set->card->lines, set->card->count, "xid", set->told);
    if (!value || !strcmp(value, "-")) return TIMEOUT;
    memset(data, 0, sizeof *data);
    set->told++;
    data->card = set->card;
    data->type = 8;
    data->data = strtoull(value, 0, 10);
    return SUCCESS;
}
