-- Neovim's own client on mine.rhai: a slip, its mending, a hover, completions, a renaming, and the save.
local out = function(line) io.stdout:write(line .. "\n") end
local function step()
    local id = vim.lsp.start_client({ name = "advlab", cmd = { vim.env.ADVLAB, "lsp" }, root_dir = vim.fn.getcwd() })
    vim.lsp.buf_attach_client(0, id)
    local function wait(what, is_done)
        if not vim.wait(300000, is_done, 20) then error("waited in vain for " .. what) end
    end
    local function ask(method, more)
        local params = vim.tbl_extend("force", vim.lsp.util.make_position_params(0, "utf-16"), more or {})
        local answers = vim.lsp.buf_request_sync(0, "textDocument/" .. method, params, 300000)
        return answers[id].result
    end
    wait("the client", function() return vim.lsp.get_client_by_id(id) and vim.lsp.get_client_by_id(id).initialized end)
    vim.api.nvim_buf_set_lines(0, 1, 2, false, { "    let r = batch.rewrad", "    - 0.0;" })
    wait("the slip", function() return #vim.diagnostic.get(0) == 1 end)
    for _, line in ipairs(vim.split(vim.diagnostic.get(0)[1].message, "\n")) do out("slip: " .. line) end
    local slip = vim.lsp.diagnostic.get_line_diagnostics(0, 1)[1]
    local actions = ask("codeAction", { range = slip.range, context = { diagnostics = { slip } } })
    vim.lsp.util.apply_workspace_edit(actions[1].edit, "utf-16")
    wait("the mended text", function() return #vim.diagnostic.get(0) == 0 end)
    out("mended: " .. #vim.diagnostic.get(0) .. " diagnostics")
    vim.api.nvim_win_set_cursor(0, { 2, 8 })
    out("hover: " .. ask("hover").contents.kind)
    for _, line in ipairs(vim.split(ask("hover").contents.value, "\n")) do out("hover: " .. line) end
    vim.api.nvim_win_set_cursor(0, { 4, 10 })
    for _, item in ipairs(ask("completion")) do out("completion: " .. item.label) end
    vim.api.nvim_win_set_cursor(0, { 2, 8 })
    vim.lsp.util.apply_workspace_edit(ask("rename", { newName = "score" }), "utf-16")
    out("renamed: " .. vim.api.nvim_buf_get_lines(0, 1, 2, false)[1])
    vim.cmd("write")
    out("done")
end
local is_done, why = pcall(step)
if not is_done then out("failed: " .. tostring(why)) end
vim.cmd("qall!")
