/* Messages between stages: where they begin and end, and in which slots. */
#include "program/compile_private.h"

static ech_status message_block(compiler *c, const message *m, bool is_wait, int *id)
{
    int *cached = &c->message_block[8 * m->peer + (m->is_send ? 4 : 0) + (m->is_gradient ? 2 : 0) +
                                    (is_wait ? 1 : 0)];
    if (*cached < 0) {
        ech_block block;
        const ech_message spec = {.is_send = m->is_send,
                                  .is_gradient = m->is_gradient,
                                  .is_wait = is_wait,
                                  .peer = m->peer};
        ECH_TRY(ech_block_message(&c->spec.block, &spec, &block));
        ECH_TRY(ech_program_add_block(c->p, &block, cached));
    }
    *id = *cached;
    return ECH_OK;
}

/* The stream into or out of a chunk, or the gradient: slots are made where they are received. */
static ech_status slot_of(compiler *c, const message *m, int *slot)
{
    kept_slots *kp = compile_kept(c, m->chunk, m->micro);
    const int blocks = c->chunk[m->chunk].blocks;
    int *x = compile_kept_slot(c, kp, m->chunk, KEPT_X, m->is_send ? blocks : 0);
    if (!m->is_send && m->is_gradient)
        ECH_TRY(compile_new_stream(c, "activation gradient", ECH_CLASS_BUFFERS, &kp->d));
    else if (!m->is_send)
        ECH_TRY(compile_new_stream(c, "activation", ECH_CLASS_ACTIVATIONS, x));
    *slot = m->is_gradient ? kp->d : *x;
    return ECH_OK;
}

ech_status compile_start_message(compiler *c, message *m)
{
    int slot = -1;
    int wait = -1;
    ech_item it = ech_item_make(-1, c->segment);
    ECH_TRY(message_block(c, m, false, &it.block));
    ECH_TRY(message_block(c, m, true, &wait));
    ECH_TRY(slot_of(c, m, &slot));
    it.chunk = m->chunk;
    it.micro = m->micro;
    it.bind[ech_message_region(m->is_send, m->is_gradient)] = (ech_view){slot, 0};
    ECH_TRY(compile_take_request(c, &it.request));
    ECH_TRY(compile_add_item(c, &it));
    it.block = wait;
    m->wait = it;
    return ECH_OK;
}

ech_status compile_await_message(compiler *c, message *m)
{
    ECH_TRY(compile_add_item(c, &m->wait));
    compile_give_request(c, m->wait.request);
    return ECH_OK;
}
