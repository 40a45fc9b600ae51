/* RUN: np=1 timeout=20 tags=fast */
/* Tables of comma-separated values: quotes, line ends, columns by name, and what is wrong with them. */
#include "check.h"
#include "folder.h"
#include "plan/validate_private.h"

/* All columns that a table must have, in one line, and one row: its id and gpus are said, the rest is
 * empty. */
static const char *const HEAD =
    "model,id,layers,hidden,ffn,heads,kv_heads,vocab,experts,topk,seq,global_batch,micro_batch,"
    "gpus,"
    "gpu_type,interconnect,tp,pp,vpp,dp,cp,ep,zero_or_fsdp,recompute,precision,schedule,"
    "measured_kind,measured_value";
static const char *const COMMAS = ",,,,,,,,,,,,,,,,,,,,,,,,,,"; /* 26 */

static ech_status parse(const char *head, const char *body, ech_table *t)
{
    char text[4096];
    const int n = snprintf(text, sizeof text, "%s\n%s", head, body);
    *t = (ech_table){0};
    return ech_table_parse(text, (size_t)n, "table.csv", t);
}

static ech_status read_table(const char *body, ech_table *t)
{
    return parse(HEAD, body, t);
}

static void test_cells(void **state)
{
    (void)state;
    ech_table t;
    char body[512];
    (void)snprintf(body, sizeof body, "\"a, \"\"b\"\"\nc\",x-1%s\r\n\ny,x-2%s", COMMAS, COMMAS);
    assert_ok(read_table(body, &t));
    assert_int_equal(t.n, 2);
    assert_string_equal(t.row[0].cell[ECH_COLUMN_MODEL], "a, \"b\"\nc");
    assert_string_equal(t.row[0].cell[ECH_COLUMN_ID], "x-1");
    assert_string_equal(t.row[0].cell[ECH_COLUMN_VALUE], "");
    assert_string_equal(t.row[0].cell[ECH_COLUMN_NOTES], ""); /* no such column */
    assert_int_equal(t.row[0].place[ECH_COLUMN_NOTES], 0);
    assert_int_equal(t.row[0].line, 2);
    assert_int_equal(t.row[1].line, 5); /* the cell of two lines, an empty line */
    assert_string_equal(t.row[1].cell[ECH_COLUMN_MODEL], "y");
    assert_int_equal(t.row[1].place[ECH_COLUMN_ID], 3);
    ech_table_fini(&t);
}

static void test_mark_of_utf8(void **state)
{
    (void)state;
    ech_table t = {0};
    char head[1024];
    char body[128];
    (void)snprintf(head, sizeof head, "\xef\xbb\xbf%s", HEAD);
    (void)snprintf(body, sizeof body, "m,x-1%s\n", COMMAS);
    assert_ok(parse(head, body, &t));
    assert_string_equal(t.row[0].cell[ECH_COLUMN_MODEL], "m");
    ech_table_fini(&t);
}

static void test_all_missing_columns_are_named(void **state)
{
    (void)state;
    ech_table t = {0};
    assert_fails(parse("id,model,id,layer,hidden", "a,b,c,d,e\n", &t), ECH_E_CONFIG,
                 "no column 'layers' (there is 'layer')");
    assert_non_null(strstr(ech_error_message(), "no column 'measured_value'"));
    assert_non_null(strstr(ech_error_message(), ":1:10: a second column 'id'"));
    assert_null(strstr(ech_error_message(), "'hidden'"));
    assert_null(strstr(ech_error_message(), "'notes'")); /* need not be there */
    assert_null(t.text);
}

static void test_what_is_no_table(void **state)
{
    (void)state;
    ech_table t;
    assert_fails(read_table("m,\"x-1,,\n", &t), ECH_E_PARSE, "table.csv:2:3: a quote begins here");
    assert_fails(read_table("m,x-1,\n", &t), ECH_E_PARSE,
                 ":2: 3 cells where the first line has 28");
    assert_fails(read_table("\"m\"n,x-1\n", &t), ECH_E_PARSE, ":2:4: after a cell in quotes");
    assert_fails(read_table("m\rn,x-1\n", &t), ECH_E_PARSE, ":2:3: a carriage return within");
    assert_fails(ech_table_parse("", 0, "empty.csv", &t), ECH_E_PARSE, "empty");
    assert_fails(ech_table_parse("a\0b", 3, "zero.csv", &t), ECH_E_PARSE, "no text");
    ech_validation v;
    assert_fails(ech_validation_read(scratch_path("absent.csv"), &v), ECH_E_IO, "absent.csv");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells),
        cmocka_unit_test(test_mark_of_utf8),
        cmocka_unit_test(test_all_missing_columns_are_named),
        cmocka_unit_test(test_what_is_no_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
