package pages

import (
	"cmp"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Hit is the section of a page that answers a question best.
type Hit struct {
	*Section
	Sentence string // the sentence of the section with most of the words
	score    float64
}

// The constants of BM25, with which each word of a section counts (Robertson and Zaragoza, The
// Probabilistic Relevance Framework, 2009, equation 3.15).
const (
	saturation = 1.2
	byLength   = 0.6
	// A word of a heading counts like several in the text.
	ofHeading = 6
	ofTitle   = 5
)

// also are words of readers, with the words of the pages that mean the same.
var also = map[string]string{
	"archive": "retention", "cleanup": "purge", "cron": "function", "debezium": "capture", "dedup": "unique", "deduplicate": "unique",
	"dlq": "dead", "delay": "AvailableAt later", "fifo": "order", "grant": "rights", "k8s": "kubernetes", "lambda": "function", "mock": "testing", "monitoring": "metrics",
	"permission": "rights", "permissions": "rights", "pgxmock": "testing", "poison": "dead letter", "postgresql": "postgres", "privilege": "rights",
	"psql": "postgres", "rps": "rate", "schedule": "AvailableAt", "serverless": "function", "sequence": "order", "sqlmock": "testing",
	"throttle": "rate", "tracing": "trace", "ui": "dashboard", "vacuum": "purge", "wal": "capture", "binlog": "capture",
}

// Find returns the pages that fit a question best, at most limit of them. A question in Chinese is
// answered by the Chinese pages, any other by the English ones.
func Find(sections []Section, question string, limit int) []Hit {
	chinese := strings.ContainsFunc(question, isChinese)
	asked := wordsOf(question)
	for _, w := range strings.Fields(strings.ToLower(question)) {
		asked = append(asked, wordsOf(also[w])...)
	}
	slices.Sort(asked)
	asked = slices.Compact(asked)

	type counted struct {
		*Section
		counts map[string]float64
		length float64
	}
	var list []counted
	holds := map[string]float64{} // the number of sections that hold a word
	total := 0.0
	for i := range sections {
		s := &sections[i]
		if strings.HasPrefix(s.Page, "zh-CN/") != chinese {
			continue
		}
		c := counted{s, map[string]float64{}, float64(len(s.words[0].words))}
		for _, part := range s.words {
			for _, w := range part.words {
				if slices.Contains(asked, w) {
					c.counts[w] += part.weight
				}
			}
		}
		for w := range c.counts {
			holds[w]++
		}
		total += c.length
		list = append(list, c)
	}

	best := map[string]Hit{} // by page
	n, average := float64(len(list)), total/float64(max(len(list), 1))
	for _, c := range list {
		score, found, of := 0.0, 0.0, 0.0
		for _, w := range asked {
			rare := math.Log(1 + (n-holds[w]+0.5)/(holds[w]+0.5))
			of += rare
			if count := c.counts[w]; count > 0 {
				found += rare
				score += rare * count * (saturation + 1) / (count + saturation*(1-byLength+byLength*c.length/average))
			}
		}
		if score *= found / of * use(c.Page); score > best[c.Page].score {
			best[c.Page] = Hit{Section: c.Section, score: score}
		}
	}
	hits := slices.Collect(maps.Values(best))
	slices.SortFunc(hits, func(a, b Hit) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.Page, b.Page)) })
	hits = hits[:min(limit, len(hits))]
	for i := range hits {
		hits[i].Sentence = bestSentence(hits[i].Text, asked)
	}
	return hits
}

// use is how likely a page is the one that a user of the library looks for.
func use(page string) float64 {
	switch {
	case strings.HasPrefix(page, "how-to/"), strings.HasPrefix(page, "zh-CN/how-to/"), strings.HasPrefix(page, "shapes/"), strings.HasPrefix(page, "zh-CN/shapes/"):
		return 1.2
	case strings.HasPrefix(page, "reliability/"), slices.Contains([]string{"SPEC.md", "zh-CN/SPEC.md", "ARCHITECTURE.md", "OBJECTIVE.md", "zh-CN/OBJECTIVE.md", "BENCHMARKS.md", "README.md"}, page):
		return 0.6
	default:
		return 1
	}
}

// bestSentence returns the sentence or the row of a table with most of the words.
func bestSentence(text string, asked []string) (best string) {
	most := -1
	for _, sentence := range sentences(text) {
		found := wordsOf(sentence)
		slices.Sort(found)
		count := 0
		for _, w := range slices.Compact(found) {
			if slices.Contains(asked, w) {
				count++
			}
		}
		if count > most {
			best, most = sentence, count
		}
	}
	return best
}

// sentenceEnd is the end of a sentence. No space follows a Chinese full stop, but a closing quote or
// bracket may.
var sentenceEnd = regexp.MustCompile(`\. |[。！？][”’」』）]*`)

// sentences returns the sentences, the rows of tables and the lines of code below a heading.
func sentences(text string) (list []string) {
	paragraph := ""
	end := func() {
		for sentence := range strings.SplitSeq(sentenceEnd.ReplaceAllString(paragraph, "$0\n"), "\n") {
			if sentence = strings.TrimSpace(sentence); strings.Trim(sentence, "-: ") != "" {
				list = append(list, sentence)
			}
		}
		paragraph = ""
	}
	_, below, _ := strings.Cut(text, "\n")
	code := false
	for line := range strings.Lines(below) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			code = !code
			end()
		case code, line == "", strings.HasPrefix(line, "|"):
			end()
			paragraph = plain(line)
			end()
		case strings.HasPrefix(line, "- "):
			end()
			fallthrough
		default:
			paragraph += plain(line) + " "
		}
	}
	end()
	return list
}

func isChinese(r rune) bool { return unicode.Is(unicode.Han, r) }

// wordsOf returns the words of a text in the form in which they are compared: in small letters, without
// the ending, and a name such as MaxAttempts in its parts too. Chinese text gives its pairs of characters.
func wordsOf(text string) (words []string) {
	for _, token := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		runes := []rune(token)
		if slices.ContainsFunc(runes, isChinese) {
			words = append(words, pairs(runes)...)
			continue
		}
		begin := 0
		for i := 1; i < len(runes); i++ {
			if unicode.IsUpper(runes[i]) && unicode.IsLower(runes[i-1]) {
				words = append(words, stem(string(runes[begin:i])))
				begin = i
			}
		}
		words = append(words, stem(string(runes[begin:])))
		if begin > 0 {
			words = append(words, stem(token))
		}
	}
	return words
}

func pairs(runes []rune) (words []string) {
	for i := range len(runes) - 1 {
		words = append(words, string(runes[i:i+2]))
	}
	if len(runes) == 1 {
		words = []string{string(runes)}
	}
	return words
}

// stem takes the ending from a word that is long enough: retries, retried and retry are the same.
func stem(word string) string {
	word = strings.ToLower(word)
	for _, ending := range []string{"ies", "ied", "ing", "es", "ed", "y", "s", "e"} {
		if rest, ok := strings.CutSuffix(word, ending); ok && len(rest) >= 4 {
			return rest
		}
	}
	return word
}
