// build: clang --target=wasm32 -O2 -mbulk-memory -msign-ext -mnontrapping-fptoint -ffreestanding -c -o tally.o tally.c && clang --target=wasm32 -nostdlib -Wl,--no-entry -Wl,--strip-all -o tally.wasm tally.o

// Tally counts the words of all inputs. Its answer is the turn's output. The
// inputs "fail", "trap" and "spin" end the turn in these ways; "keep" makes the
// memory grow.

typedef unsigned u32;
typedef unsigned long long u64;
typedef u64 (*request)(const char *, u32);

#define IMPORT(name) __attribute__((import_module("agent"), import_name(#name))) extern
#define EXPORT(name) __attribute__((export_name(#name)))

IMPORT(start) u64 agent_start(const char *, u32);
IMPORT(output) u64 agent_output(const char *, u32);
IMPORT(reply) u64 agent_reply(const char *, u32);
IMPORT(fail) u64 agent_fail(const char *, u32);
IMPORT(read) u32 agent_read(char *, u32);

enum { LETTERS = 32, WORDS = 1024, RESPONSE = 1 << 14, BLOCK = 300 << 10, PAGE = 1 << 16 };

static struct word {
	char text[LETTERS];
	u32 length, count;
} words[WORDS];
static u32 slots[2 * WORDS]; // of the hash table: indices of words, plus one
static u32 different, total, kept;
static u64 letters;
static char response[RESPONSE], message[512], *last_block;

static u32 same(const char *a, const char *b, u32 n) {
	for (u32 i = 0; i < n; i++)
		if (a[i] != b[i])
			return 0;
	return 1;
}

static u32 length(const char *s) {
	u32 n = 0;
	while (s[n])
		n++;
	return n;
}

static u32 alphanumeric(char c) {
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static void add(const char *text, u32 n) {
	u64 hash = 0xcbf29ce484222325u;
	for (u32 i = 0; i < n; i++)
		hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
	u32 at = (u32)(hash ^ hash >> 32) % (2 * WORDS);
	if (n > LETTERS)
		n = LETTERS;
	for (; slots[at]; at = (at + 1) % (2 * WORDS)) {
		struct word *w = &words[slots[at] - 1];
		if (w->length == n && same(w->text, text, n))
			break;
	}
	if (!slots[at]) {
		if (different == WORDS)
			return;
		slots[at] = ++different;
		__builtin_memcpy(words[different - 1].text, text, n);
		words[different - 1].length = n;
	}
	words[slots[at] - 1].count++;
	letters += n;
	total++;
}

static char *put(char *to, const char *text, u32 n) {
	__builtin_memcpy(to, text, n);
	return to + n;
}

static char *number(char *to, u32 v, u32 digits) {
	if (v >= 10 || digits > 1)
		to = number(to, v / 10, digits - 1);
	*to = (char)('0' + v % 10);
	return to + 1;
}

#define PUT(to, literal) put(to, literal, sizeof literal - 1)

static char *answer(char *to, const char *text, u32 n) {
	for (u32 from = 0, i = 0; i <= n; i++)
		if (i == n || !alphanumeric(text[i])) {
			if (i > from)
				add(text + from, i - from);
			from = i + 1;
		}
	const struct word *most = words;
	for (u32 i = 0; i < different; i++)
		if (words[i].count > most->count)
			most = &words[i];
	u32 mean = (u32)(100.0 * (double)letters / (double)(total ? total : 1) + 0.5);
	to = PUT(number(to, total, 1), " words, ");
	to = PUT(number(to, different, 1), " different, most often ");
	to = PUT(put(to, most->text, most->length), " (");
	to = PUT(number(to, most->count, 1), "), mean length ");
	return number(PUT(number(to, mean / 100, 1), "."), mean % 100, 2);
}

static char *keep(char *to) {
	u32 pages = (BLOCK + PAGE - 1) / PAGE;
	char *block = (char *)(__builtin_wasm_memory_grow(0, pages) * PAGE);
	if (last_block)
		__builtin_memcpy(block, last_block, BLOCK);
	else
		__builtin_memset(block, 7, BLOCK);
	last_block = block;
	return PUT(number(to, ++kept, 1), " kept");
}

// ask sends a request and returns the length of the response, or -1 if the
// status is not 0. It is volatile so that a call goes through the table.
static int ask(request volatile how, const char *body, u32 n) {
	u64 result = how(body, n);
	u32 got = agent_read(response, RESPONSE);
	return result >> 32 ? -1 : (int)got;
}

// last_text finds the text of the last input, as it stands in the JSON.
static const char *last_text(u32 n, u32 *size) {
	static const char mark[] = "{\"text\":\"";
	for (u32 at = n; at-- > 0;)
		if (at + sizeof mark <= n && same(response + at, mark, sizeof mark - 1)) {
			const char *text = response + at + sizeof mark - 1;
			for (*size = 0; text[*size] != '"'; ++*size)
				;
			return text;
		}
	*size = 0;
	return response;
}

EXPORT(agent_abi_v1) void agent_abi_v1(void) {}

EXPORT(agent_describe) int agent_describe(void) {
	static const char text[] = "{\"id\":\"tally\",\"version\":\"c\",\"capabilities\":"
							   "{\"resumability\":\"RESUMABILITY_REQUIRES_MEMORY_SNAPSHOT\",\"fork_safe\":true}}";
	return ask(agent_reply, text, sizeof text - 1) < 0;
}

enum command { COUNT, FAIL, TRAP, SPIN, KEEP };

static enum command command(const char *text, u32 n) {
	static const char *const names[] = {"", "fail", "trap", "spin", "keep"};
	for (u32 i = FAIL; i <= KEEP; i++)
		if (n == length(names[i]) && same(names[i], text, n))
			return (enum command)i;
	return COUNT;
}

EXPORT(agent_run) int agent_run(void) {
	static const char failure[] = "{\"code\":3,\"description\":\"asked to fail\"}";
	int got = ask(agent_start, 0, 0);
	if (got < 0)
		return 1;
	u32 n;
	const char *text = last_text((u32)got, &n);
	char *to = PUT(message, "{\"role\":\"assistant\",\"parts\":[{\"text\":{\"text\":\"");
	switch (command(text, n)) {
	case FAIL:
		ask(agent_fail, failure, sizeof failure - 1);
		return 1;
	case TRAP:
		__builtin_trap();
	case SPIN:
		for (volatile u64 *sink = &letters;; *sink = *sink * 31 + (*sink >> 7))
			;
	case KEEP:
		to = keep(to);
		break;
	case COUNT:
		to = answer(to, text, n);
	}
	to = PUT(to, "\"}}]}");
	return ask(agent_output, message, (u32)(to - message)) < 0;
}
