/* A machine file: lines `key value`, `#` for comments; a line `card` begins a card. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE 256
#define MOST_LINES 64
#define MOST_CARDS 16

struct card {
    char lines[MOST_LINES][LINE];
    int count;
    /* The nvmlReturn_t of everything that reaches for the card. */
    int lost;
};

struct machine {
    char lines[MOST_LINES][LINE];
    int count;
    struct card cards[MOST_CARDS];
    int cards_count;
};

/* The value of the (n+1)th line with the key, or null. */
static const char *find_nth(char lines[][LINE], int count, const char *key, unsigned n)
{
    size_t length = strlen(key);
    for (int at = 0; at < count; at++)
        if (!strncmp(lines[at], key, length) && lines[at][length] == ' ' && n-- == 0)
            return lines[at] + length + 1;
    return 0;
}

static const char *find(char lines[][LINE], int count, const char *key)
{
    return find_nth(lines, count, key, 0);
}

/* The file is named by a variable that only the stand-ins read. */
static void read_machine(struct machine *machine)
{
    const char *path = getenv("SCONCE_STAND_IN_MACHINE");
    FILE *file = path ? fopen(path, "r") : 0;
    char line[LINE];
    memset(machine, 0, sizeof *machine);
    while (file && fgets(line, sizeof line, file)) {
        char *text = line + strspn(line, " \t");
        struct card *card = &machine->cards[machine->cards_count - (machine->cards_count > 0)];
        text[strcspn(text, "\n")] = 0;
        if (!*text || *text == '#') continue;
        if (!strcmp(text, "card")) {
            if (machine->cards_count < MOST_CARDS) machine->cards_count++;
        } else if (machine->cards_count == 0) {
            if (machine->count < MOST_LINES) strcpy(machine->lines[machine->count++], text);
        } else if (card->count < MOST_LINES) {
            if (!strncmp(text, "lost ", 5)) card->lost = atoi(text + 5);
            strcpy(card->lines[card->count++], text);
        }
    }
    if (file) fclose(file);
}
