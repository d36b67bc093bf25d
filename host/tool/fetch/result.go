package fetch

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentcell/agentcell/sdk/abi"
)

// maxShown bounds the headers that are shown, and maxValue each.
const (
	maxShown = 8 << 10
	maxValue = 1 << 10
)

// answer is what a harness and its model read.
type answer struct {
	Status int `json:"status"`
	// URL is where the answer is from, behind all redirects.
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	// Truncated: the body was longer.
	Truncated bool `json:"truncated,omitempty"`
	// Note says why there is no body, or where it is.
	Note string `json:"note,omitempty"`
}

// errEchoed reports an answer that would carry a secret into the record (S4).
var errEchoed = errors.New("the answer holds a secret that was sent with the request; it is not taken")

// result makes the result of a call of an answer.
func (f *Fetcher) result(r *request, resp *http.Response, sent secrets) (abi.ToolResult, error) {
	body, more, err := f.body(r, resp)
	if err != nil {
		return abi.ToolResult{}, err
	}
	a := answer{Status: resp.StatusCode, Headers: shown(resp.Header), URL: r.url.String()}
	var file *abi.FilePart
	text, isText := textOf(resp.Header.Get("Content-Type"), body, more)
	kind := fileKind(body)
	switch {
	case len(body) == 0:
	case kind != "" && more:
		a.Note = fmt.Sprintf("%s of more than %d bytes is left out", kind, f.cfg.Limits.BodyBytes)
	case kind != "":
		a.Note = fmt.Sprintf("%s, %d bytes, is beside this", kind, len(body))
		file = &abi.FilePart{MIME: kind, Bytes: body}
	case isText:
		a.Body, a.Truncated = text, more
	default:
		a.Note = "the body is neither text, nor an image or PDF, and is left out"
	}
	return made(a, file, sent)
}

// made is the result, unless a secret is in it (S4).
func made(a answer, file *abi.FilePart, sent secrets) (abi.ToolResult, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(a); err != nil {
		return abi.ToolResult{}, err
	}
	output := abi.Struct(bytes.TrimSpace(b.Bytes()))
	readable, err := url.QueryUnescape(a.URL)
	if err != nil {
		readable = a.URL
	}
	held := []string{readable, a.Body, string(output)}
	held = slices.AppendSeq(held, maps.Values(a.Headers))
	if file != nil {
		held = append(held, string(file.Bytes))
	}
	if slices.ContainsFunc(held, sent.in) {
		return abi.ToolResult{}, errEchoed
	}
	result := abi.ToolResult{Output: output}
	if file != nil {
		result.Content = []abi.Part{{Data: &abi.DataPart{Data: output}}, {File: file}}
	}
	return result, nil
}

// body reads the body of an answer up to the limit, and reports whether there is more.
func (f *Fetcher) body(r *request, resp *http.Response) (body []byte, more bool, err error) {
	if r.method == http.MethodHead {
		return nil, false, nil
	}
	limit := int64(f.cfg.Limits.BodyBytes)
	// Packed, it has as many bytes, too: else one that unpacks to nothing has no end.
	raw := &io.LimitedReader{R: resp.Body, N: limit + 1}
	reader := io.Reader(raw)
	switch encoding := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		packed, err := gzip.NewReader(raw)
		if errors.Is(err, io.EOF) {
			return nil, false, nil // there is no body to unpack
		}
		if err != nil {
			return nil, false, errors.New("the answer says that it is gzip, and is not")
		}
		reader = packed
	default:
		return nil, false, fmt.Errorf("the answer is packed with %.40q, which was not asked for", encoding)
	}
	body, err = io.ReadAll(io.LimitReader(reader, limit+1))
	switch {
	case int64(len(body)) > limit:
		return body[:limit], true, nil
	case err != nil && raw.N <= 0:
		return nil, false, fmt.Errorf("the packed answer has more than %d bytes", limit)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, false, errors.New("the answer broke off")
	}
	return body, false, err
}

// shown are the headers that a model is told of. Cookies are not: they say who asks.
func shown(h http.Header) map[string]string {
	out, size := map[string]string{}, 0
	for _, name := range slices.Sorted(maps.Keys(h)) {
		value := strings.ToValidUTF8(strings.Join(h[name], ", "), "\uFFFD")
		if name == "Set-Cookie" || size+len(name)+min(len(value), maxValue) > maxShown {
			continue
		}
		if len(value) > maxValue {
			value = wholeRunes(value[:maxValue]) + "…"
		}
		size += len(name) + len(value)
		out[strings.ToLower(name)] = value
	}
	return out
}

// wholeRunes leaves out a character that is cut off at the end.
func wholeRunes(s string) string {
	for i := 1; i < utf8.UTFMax && i <= len(s); i++ {
		if tail := s[len(s)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRuneInString(tail) {
				return s[:len(s)-i]
			}
			break
		}
	}
	return s
}

// textOf is a body as text, if it is one.
func textOf(contentType string, body []byte, more bool) (string, bool) {
	text := string(body)
	if more {
		text = wholeRunes(text)
	}
	if utf8.ValidString(text) && !strings.Contains(text, "\x00") {
		return text, true
	}
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || !strings.HasPrefix(kind, "text/") || strings.Contains(text, "\x00") {
		return "", false
	}
	if strings.EqualFold(params["charset"], "iso-8859-1") {
		runes := make([]rune, len(body))
		for i, c := range body {
			runes[i] = rune(c)
		}
		return string(runes), true
	}
	return strings.ToValidUTF8(text, "\uFFFD"), true
}

// fileKind is what a body is by its first bytes, if models take files of that kind;
// what a server calls it may be wrong, and a provider then refuses the whole
// conversation.
func fileKind(body []byte) string {
	switch kind := http.DetectContentType(body); kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf":
		return kind
	}
	return ""
}
