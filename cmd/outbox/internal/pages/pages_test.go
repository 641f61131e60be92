package pages_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/pages"
	"github.com/outboxkit/outbox-go/docs"
)

func read(t *testing.T) []pages.Section {
	t.Helper()
	sections, err := pages.Read(docs.Pages)
	require.NoError(t, err)
	require.Greater(t, len(sections), 500)
	return sections
}

func TestAPageIsCutAtItsHeadings(t *testing.T) {
	t.Parallel()
	const text = "# The [title](x.md)\n\nIntro.\n<!-- not\nshown -->\n## Set `it` up\nOne.\n```go\n# no heading\n```\n### Deeper, still\nTwo.\n## Set it up\nThree.\n"
	sections, err := pages.Read(fstest.MapFS{"a/b.md": {Data: []byte(text)}, "a/c.txt": {Data: []byte("# No page\n")}})
	require.NoError(t, err)
	var addresses []string
	for i := range sections {
		addresses = append(addresses, sections[i].Address())
		require.Equal(t, "The title", sections[i].Title)
	}
	require.Equal(t, []string{"a/b.md", "a/b.md#set-it-up", "a/b.md#deeper-still", "a/b.md#set-it-up-1"}, addresses)
	for address, want := range map[string]string{
		"a/b.md":              strings.Replace(text, "<!-- not\nshown -->\n", "", 1),
		"docs/" + "a/b.md":    strings.Replace(text, "<!-- not\nshown -->\n", "", 1),
		"a/b.md#set-it-up":    "## Set `it` up\nOne.\n```go\n# no heading\n```\n### Deeper, still\nTwo.\n",
		"a/b.md#deeper-still": "### Deeper, still\nTwo.\n",
		"a/b.md#set-it-up-1":  "## Set it up\nThree.\n",
	} {
		got, err := pages.Print(sections, address)
		require.NoError(t, err)
		require.Equal(t, want, got, address)
	}
	for _, address := range []string{"", "b.md", "a/b.md#no", "a/c.txt", "../a/b.md"} {
		_, err := pages.Print(sections, address)
		require.ErrorIs(t, err, pages.ErrNoPage, address)
	}
}

// Each link from one page to another leads to a section that can be printed.
func TestEachLinkLeadsToASection(t *testing.T) {
	t.Parallel()
	links := regexp.MustCompile(`\]\(([\w/.-]+\.md(?:#[^)\s]+)?)\)`)
	sections := read(t)
	count := 0
	for i := range sections {
		for _, m := range links.FindAllStringSubmatch(sections[i].Text, -1) {
			address := path.Join(path.Dir(sections[i].Page), m[1])
			if strings.HasPrefix(address, "..") {
				continue // a page outside of this folder
			}
			count++
			_, err := pages.Print(sections, address)
			require.NoError(t, err, "%s links to %s", sections[i].Page, m[1])
		}
	}
	require.Greater(t, count, 300)
}

// The questions of readers, with the page that answers each. It is among the first three.
func TestAQuestionFindsItsPage(t *testing.T) {
	t.Parallel()
	sections := read(t)
	for question, want := range map[string]string{
		"retry a dead letter":                   "how-to/dead-letters.md",
		"DLQ":                                   "how-to/dead-letters.md",
		"sqlmock":                               "how-to/testing.md",
		"two databases":                         "how-to/several-databases.md",
		"MaxAttempts":                           "how-to/rules-of-a-kind.md",
		"order of events per aggregate":         "how-to/order-by-key.md",
		"fifo":                                  "how-to/brokers/sqs.md",
		"event twice":                           "how-to/when-something-is-wrong.md",
		"the table grows":                       "how-to/when-something-is-wrong.md",
		"cleanup of old rows":                   "how-to/purge.md",
		"search_path":                           "how-to/schema-for-each-tenant.md",
		"Idempotency-Key":                       "how-to/retries-by-clients.md",
		"broker is away":                        "how-to/brokers/outages.md",
		"gorm hooks":                            "how-to/adapters/gorm.md",
		"zap logger":                            "reference/metrics.md",
		"k8s probes":                            "how-to/kubernetes.md",
		"lambda":                                "how-to/functions-and-cron.md",
		"debezium":                              "how-to/change-data-capture.md",
		"rate limit per second":                 "how-to/flow-control.md",
		"pause a kind of event":                 "how-to/flow-control.md",
		"multi tenant schema":                   "how-to/schema-for-each-tenant.md",
		"prometheus alerts":                     "how-to/metrics-and-alerts.md",
		"opentelemetry tracing":                 "how-to/traces.md",
		"echo middleware transaction":           "how-to/web/echo.md",
		"api and worker":                        "shapes/api-and-worker.md",
		"keep debezium":                         "shapes/keep-debezium.md",
		"fiber":                                 "how-to/web/fiber.md",
		"goose migration":                       "how-to/migrations.md",
		"deadlock retry transaction":            "how-to/conflicts.md",
		"encrypt payload":                       "how-to/payloads.md",
		"json schema contract":                  "how-to/contracts.md",
		"webhook signature":                     "how-to/webhooks.md",
		"pgbouncer":                             "how-to/pgbouncer.md",
		"graceful shutdown":                     "how-to/shutdown.md",
		"compare with river":                    "COMPARISON.md",
		"what happens when the process crashes": "FAQ.md",
		"migrate from my own outbox table":      "MIGRATING.md",
		"kafka partition key":                   "how-to/brokers/kafka.md",
		"死信重放":                                  "zh-CN/how-to/dead-letters.md",
		"撤销删除":                                  "zh-CN/how-to/dead-letters.md",
		"表越来越大":                                 "zh-CN/how-to/purge.md",
		"按顺序投递":                                 "zh-CN/how-to/order-by-key.md",
		"链路追踪":                                  "zh-CN/how-to/traces.md",
		"告警":                                    "zh-CN/how-to/metrics-and-alerts.md",
		"怎样加密":                                  "zh-CN/how-to/payloads.md",
		"一个进程连两个数据库":                            "zh-CN/how-to/several-databases.md",
		"复制槽":                                   "zh-CN/how-to/change-data-capture.md",
		"事务里怎样写事件":                              "zh-CN/how-to/transactions.md",
		"云函数":                                   "zh-CN/how-to/functions-and-cron.md",
		"GORM 钩子":                               "zh-CN/how-to/adapters/gorm.md",
		"bun 保存点":                               "zh-CN/how-to/adapters/bun.md",
		"Echo 中间件的顺序":                           "zh-CN/how-to/web/echo.md",
		"API 和 worker":                          "zh-CN/shapes/api-and-worker.md",
		"只写事件的 API":                             "zh-CN/shapes/api-and-worker.md",
		"按组部署 worker":                           "zh-CN/shapes/worker-fleet.md",
		"命令行程序写完就退出":                            "zh-CN/shapes/short-lived-writer.md",
		"多租户":                                   "zh-CN/shapes/many-tenants.md",
		"订单库的事件写到库存库":                           "zh-CN/shapes/two-databases.md",
		"只发布到 broker":                           "zh-CN/shapes/only-a-relay.md",
		"继续使用 Debezium":                         "zh-CN/shapes/keep-debezium.md",
		"至少一次":                                  "zh-CN/README.md",
	} {
		var found []string
		for _, hit := range pages.Find(sections, question, 3) {
			found = append(found, hit.Page)
			require.NotEmpty(t, hit.Sentence, "%s in %s", question, hit.Address())
		}
		if !slices.Contains(found, want) {
			t.Errorf("%q finds %v, not %s", question, found, want)
		}
	}
}

func TestAQuestionOfUnknownWordsFindsNothing(t *testing.T) {
	t.Parallel()
	sections := read(t)
	for _, question := range []string{"", "...", "qwertzuiop", "§"} {
		require.Empty(t, pages.Find(sections, question, 3), question)
	}
	require.Empty(t, pages.Find(nil, "outbox", 3))
}

func TestEndingsDoNotMatter(t *testing.T) {
	t.Parallel()
	sections, err := pages.Read(fstest.MapFS{"a.md": {Data: []byte("# A\nIt retries, once per MaxAttempts of the search_path. 死信会重放。\n")}, "b.md": {Data: []byte("# B\nNothing.\n")}})
	require.NoError(t, err)
	for _, question := range []string{"retry", "RETRIED", "retries", "attempt", "maxattempts", "search_path", "path"} {
		hits := pages.Find(sections, question, 3)
		require.Len(t, hits, 1, question)
		require.Equal(t, "It retries, once per MaxAttempts of the search_path.", hits[0].Sentence)
	}
}

// A hit shows a sentence, not its paragraph, in English and in Chinese.
func TestAHitShowsASentence(t *testing.T) {
	t.Parallel()
	sections, err := pages.Read(fstest.MapFS{
		"a.md":            {Data: []byte("# A\nA purge deletes rows. Version 1.2 restores a deletion. Nothing else.\n")},
		"zh-CN/" + "a.md": {Data: []byte("# 甲\n清理删除旧的行。**死信可以重放**（见“`outbox` 的说明。”）重放之后归零。还有版本 1.2 吗？没有！\n\n| 撤销 | 恢复行。 |\n")},
	})
	require.NoError(t, err)
	for question, want := range map[string]string{
		"delete rows": "A purge deletes rows.",
		"restore":     "Version 1.2 restores a deletion.",
		"else":        "Nothing else.",
		"清理":          "清理删除旧的行。",
		"可以重放":        "死信可以重放（见“outbox 的说明。”）",
		"之后归零":        "重放之后归零。",
		"还有版本":        "还有版本 1.2 吗？",
		"没有":          "没有！",
		"撤销":          "撤销 | 恢复行。",
	} {
		hits := pages.Find(sections, question, 3)
		require.Len(t, hits, 1, question)
		require.Equal(t, want, hits[0].Sentence, question)
	}
}
